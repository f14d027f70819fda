package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Step asks for one decision, and then puts a pod on a node, so that the next decision is on a cluster that has changed.
type Step struct {
	Pod  *v1.Pod `json:"pod"`
	Bind *v1.Pod `json:"bind"` // its spec.nodeName is set; nil for none
}

// Timing is one decision: how long it took, and what it was.
type Timing struct {
	Error      string             `json:"error,omitempty"`
	Ns         int64              `json:"ns"`                   // the snapshot brought up to date, and the decision
	Total      map[string]int64   `json:"total,omitempty"`      // by feasible node
	Candidates map[string]Victims `json:"candidates,omitempty"` // where none is feasible: whom to evict, by node
}

const stepsBetweenCollections = 10

// bench reads a case and then steps, and writes the timing of each step before it reads the next.
func bench(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	c := Case{Pod: &v1.Pod{}}
	if err := decoder.Decode(&c); err != nil {
		return fmt.Errorf("case: %w", err)
	}
	s, err := newStock(ctx, &c)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1) // or the garbage of one step's answer would be collected in the time of the next
	for number := 0; ; number++ {
		if number%stepsBetweenCollections == 0 {
			runtime.GC()
		}
		var step Step
		if err := decoder.Decode(&step); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("step: %w", err)
		}
		if err := encoder.Encode(s.step(ctx, &step)); err != nil {
			return err
		}
	}
}

func (s *stock) step(ctx context.Context, step *Step) *Timing {
	s.pod = step.Pod
	t := &Timing{}
	start := time.Now()
	err := s.update(ctx)
	feasible := s.schedule(ctx)
	if feasible {
		t.Ns = time.Since(start).Nanoseconds()
	}
	d := &decision{stock: s, Answer: &Answer{Filter: map[string]Status{}}, state: framework.NewCycleState(), statuses: framework.NewDefaultNodeToStatus()}
	if feasible {
		err = errors.Join(err, d.decide(ctx, false))
	} else { // the filters once more, as their statuses are not to be had from a failed attempt
		start = time.Now()
		d.filterInParallel(ctx)
		err = errors.Join(err, d.preempt(ctx))
		t.Ns = time.Since(start).Nanoseconds()
	}
	t.Total, t.Candidates = d.Total, d.Candidates
	if step.Bind != nil {
		err = errors.Join(err, s.scheduler.Cache.AddPod(klog.FromContext(ctx), step.Bind))
	}
	if err != nil {
		t.Error = err.Error()
	}
	return t
}

// schedule is the scheduler's own SchedulePod; false where no node is feasible.
func (s *stock) schedule(ctx context.Context) bool {
	pod, err := framework.NewPodInfo(s.pod)
	if err != nil {
		panic(err)
	}
	_, err = s.scheduler.SchedulePod(ctx, s.framework, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: pod})
	return err == nil
}

// filterInParallel filters as the scheduler does where no extender and no limit of nodes stands in the way.
func (d *decision) filterInParallel(ctx context.Context) {
	d.framework.RunPreFilterPlugins(ctx, d.state, d.pod)
	verdicts := make([]*fwk.Status, len(d.nodes))
	check := func(i int) {
		verdicts[i] = d.framework.RunFilterPluginsWithNominatedPods(ctx, d.state, d.pod, d.nodes[i])
	}
	d.framework.Parallelizer().Until(ctx, len(d.nodes), check, "bench")
	for i, verdict := range verdicts {
		if verdict.IsSuccess() {
			d.feasible = append(d.feasible, d.nodes[i])
		} else {
			d.statuses.Set(d.nodes[i].Node().Name, verdict)
		}
	}
}
