package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// GroupAnswer tells how one cycle went for the only root group of a case. Pods are namespace/name.
type GroupAnswer struct {
	Name  string `json:"name,omitempty"`
	Error string `json:"error,omitempty"`

	// Gated: the group did not come into the active queue, so nothing else is answered.
	Gated bool `json:"gated,omitempty"`

	// Tries are the members in the order in which they were tried, in all placements and in preemption's dry run. Again
	// are those that were placed again without a try, each time that a group above them chose its placement, while
	// preemption chose the pods that stay, or in the end. Placed are the members that were placed in the end.
	Tries  []Try             `json:"tries"`
	Again  []Try             `json:"again,omitempty"`
	Placed map[string]string `json:"placed"`

	// Failures are the members that were put back. Conditions are by PodGroup or, since 1.38, CompositePodGroup.
	Failures   map[string]Failed    `json:"failures"`
	Conditions map[string]Condition `json:"conditions"`

	// DryRunFrom is the number of tries before PodGroupPostFilter; those after it are preemption's dry run. Likewise
	// AgainDryRunFrom. They are nil if PodGroupPostFilter did not run. Victims are the pods that preemption deleted.
	DryRunFrom      *int     `json:"dryRunFrom,omitempty"`
	AgainDryRunFrom *int     `json:"againDryRunFrom,omitempty"`
	Victims         []string `json:"victims,omitempty"`
}

// Try is one attempt to find a node for a member; Node is "" if there was none. Nodes are those of its placement.
type Try struct {
	Pod   string   `json:"pod"`
	Nodes []string `json:"nodes,omitempty"`
	Node  string   `json:"node,omitempty"`
}

// Failed is what the failure handler gets. Nominated is nil if the nomination stays as it is.
type Failed struct {
	Code      string  `json:"code"`
	Message   string  `json:"message"`
	Nominated *string `json:"nominated,omitempty"`
}

// Condition is PodGroupInitiallyScheduled or CompositePodGroupInitiallyScheduled.
type Condition struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

const recorderName = "Recorder"

// recorder is a plugin that notes each try and each reservation. Only the tries before the first commit count: a
// member that is reserved without a try is committed.
type recorder struct {
	mutex  sync.Mutex
	answer *GroupAnswer
	tried  string
	// snapshot is that of the scheduler; it knows the placement that is tried.
	snapshot *cache.Snapshot
}

func (*recorder) Name() string { return recorderName }

func (r *recorder) PreFilter(
	_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	nodes, err := r.snapshot.ListNodesInPlacement()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Node().Name)
	}
	sort.Strings(names)
	r.tried = keyOf(pod)
	r.answer.Tries = append(r.answer.Tries, Try{Pod: r.tried, Nodes: names})
	return nil, fwk.NewStatus(fwk.Skip)
}

func (*recorder) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (r *recorder) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.tried == keyOf(pod) && slices.Contains(r.answer.Tries[len(r.answer.Tries)-1].Nodes, node) {
		r.answer.Tries[len(r.answer.Tries)-1].Node = node
		r.tried = ""
	} else {
		r.answer.Placed[keyOf(pod)] = node
		r.answer.Again = append(r.answer.Again, Try{Pod: keyOf(pod), Node: node})
	}
	return nil
}

func (r *recorder) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.answer.Placed, keyOf(pod))
}

// PodGroupPostFilter runs before the others, and leaves the group to them.
func (r *recorder) PodGroupPostFilter(
	context.Context, fwk.PodGroupCycleState, fwk.PodGroupInfo, fwk.PodGroupSchedulingFunc,
) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	tries, again := len(r.answer.Tries), len(r.answer.Again)
	r.answer.DryRunFrom, r.answer.AgainDryRunFrom = &tries, &again
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// detach keeps what goes on in the background from changing the answer.
func (r *recorder) detach() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.answer = &GroupAnswer{Placed: map[string]string{}, Failures: map[string]Failed{}}
}

func keyOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

func serveGroups(in io.Reader, out io.Writer) error {
	decoder, buffer := json.NewDecoder(bufio.NewReaderSize(in, 1<<20)), bufio.NewWriter(out)
	encoder := json.NewEncoder(buffer)
	for number := 1; ; number++ {
		var c Case
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("case %d: %w", number, err)
		}
		if err := errors.Join(encoder.Encode(answerGroup(&c)), buffer.Flush()); err != nil {
			return err
		}
	}
}

func answerGroup(c *Case) (a *GroupAnswer) {
	a = &GroupAnswer{
		Name: c.Name, Tries: []Try{}, Placed: map[string]string{},
		Failures: map[string]Failed{}, Conditions: map[string]Condition{},
	}
	defer func() {
		if r := recover(); r != nil {
			a.Error = fmt.Sprint("panic: ", r)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := a.decide(ctx, c); err != nil {
		a.Error = err.Error()
	}
	return a
}

func (a *GroupAnswer) decide(ctx context.Context, c *Case) error {
	objects, err := c.objects()
	if err != nil {
		return err
	}
	configuration, err := c.configuration()
	if err != nil {
		return err
	}
	notes := &recorder{answer: a}
	for i := range configuration.Profiles {
		plugins := configuration.Profiles[i].Plugins
		plugins.MultiPoint.Enabled = append([]config.Plugin{{Name: recorderName}}, plugins.MultiPoint.Enabled...)
	}
	factory := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return notes, nil }
	client := fake.NewSimpleClientset(objects...)
	client.PrependReactor("create", "resourceclaims", nameGenerated)
	sched, err := syncedWith(ctx, client, configuration, frameworkruntime.Registry{recorderName: factory})
	if err != nil {
		return err
	}
	notes.snapshot = snapshotOf(sched)
	sched.FailureHandler = func(
		_ context.Context, _ framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, _ time.Time,
	) {
		notes.mutex.Lock()
		defer notes.mutex.Unlock()
		failed := Failed{Code: status.Code().String(), Message: messageOf(info, status)}
		if nominating != nil && nominating.Mode() == fwk.ModeOverride {
			failed.Nominated = &nominating.NominatedNodeName
		}
		notes.answer.Failures[keyOf(info.Pod)] = failed
	}
	if len(sched.SchedulingQueue.PodsInActiveQ()) == 0 {
		a.Gated = true
		return nil
	}
	sched.ScheduleOne(ctx)
	notes.detach()
	return a.readActions(client)
}

// messageOf gives the message of the pod's event. Since 1.38, the scheduler's own failure handler writes the name of the
// group in place of the group's status.
func messageOf(info *framework.QueuedPodInfo, status *fwk.Status) string {
	if fmt.Sprintf("%T", status.AsError()) == "*scheduler.podGroupFitError" {
		return fmt.Sprintf("parent pod group %q is unschedulable", *info.Pod.Spec.SchedulingGroup.PodGroupName)
	}
	return status.Message()
}

// nameGenerated names a new claim as the API server does; the fake client would store all of them without a name.
func nameGenerated(action clienttesting.Action) (bool, runtime.Object, error) {
	claim := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceClaim)
	if claim.Name == "" {
		claim.Name = names.SimpleNameGenerator.GenerateName(claim.GenerateName)
	}
	return false, nil, nil
}

// readActions reads the conditions of PodGroups and CompositePodGroups, and the evictions.
func (a *GroupAnswer) readActions(client *fake.Clientset) error {
	for _, action := range client.Actions() {
		switch act := action.(type) {
		case clienttesting.PatchAction:
			if resource := act.GetResource().Resource; resource != "podgroups" && resource != "compositepodgroups" {
				continue
			}
			var raw struct {
				Status struct {
					Conditions []struct {
						Type    string `json:"type"`
						Status  string `json:"status"`
						Reason  string `json:"reason"`
						Message string `json:"message"`
					} `json:"conditions"`
				} `json:"status"`
			}
			if err := json.Unmarshal(act.GetPatch(), &raw); err != nil {
				return err
			}
			for _, condition := range raw.Status.Conditions {
				key := act.GetNamespace() + "/" + act.GetName()
				a.Conditions[key] = Condition{condition.Status, condition.Reason, condition.Message}
			}
		case clienttesting.DeleteAction:
			if act.GetResource().Resource == "pods" {
				a.Victims = append(a.Victims, act.GetNamespace()+"/"+act.GetName())
			}
		}
	}
	sort.Strings(a.Victims)
	return nil
}
