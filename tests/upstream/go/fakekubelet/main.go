// fakekubelet makes nodes and stands in for their kubelets: Ready with leases, admission by the kubelet's own predicates,
// pods Running once their claims and volumes are there, and gone after their grace period.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

const startDelay = 200 * time.Millisecond

// state is what is known of a pod beside its object.
type state struct {
	admitted            bool
	node                string
	pod                 *v1.Pod
	bound, died         time.Time
	started             time.Time
	deleted, complained bool
}

// fake is the kubelet of all nodes.
type fake struct {
	cs    *kubernetes.Clientset
	pods  cache.SharedIndexInformer
	nodes cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[string]
	names map[string]bool

	mu sync.Mutex
	by map[types.UID]*state
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	count := flag.Int("nodes", 6, "how many there are")
	zones := flag.Int("zones", 3, "how many they stand in")
	flag.Parse()
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	cfg.QPS, cfg.Burst = 500, 1000
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := &fake{cs: kubernetes.NewForConfigOrDie(cfg), names: map[string]bool{}, by: map[types.UID]*state{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	for i := range *count {
		name := fmt.Sprintf("node-%d", i)
		f.names[name] = true
		f.createNode(ctx, name, i, *zones)
		go f.heartbeat(ctx, name)
	}
	factory := informers.NewSharedInformerFactory(f.cs, 0)
	f.pods, f.nodes = factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()
	enqueue := func(o any) {
		if p, ok := o.(*v1.Pod); ok && f.names[p.Spec.NodeName] {
			f.queue.Add(p.Namespace + "/" + p.Name)
		}
	}
	_, err = f.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) },
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.by, o.(*v1.Pod).UID)
		}})
	must(err)
	_, err = f.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) { go f.syncAllocatable(ctx, o.(*v1.Node)) }})
	must(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range 8 {
		go f.work(ctx)
	}
	<-ctx.Done()
	f.queue.ShutDown()
}

func (f *fake) createNode(ctx context.Context, name string, i, zones int) {
	ip := fmt.Sprintf("10.1.0.%d", i+1)
	has := v1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("100Gi")}
	now := metav1.Now()
	cond := func(t v1.NodeConditionType, s v1.ConditionStatus) v1.NodeCondition {
		return v1.NodeCondition{Type: t, Status: s, Reason: "Fake", LastHeartbeatTime: now, LastTransitionTime: now}
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1.LabelHostname: name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
		v1.LabelTopologyZone: fmt.Sprintf("z%d", i%zones), v1.LabelTopologyRegion: "r1"}},
		Status: v1.NodeStatus{Capacity: has, Allocatable: has.DeepCopy(),
			Conditions: []v1.NodeCondition{cond(v1.NodeReady, "True"), cond(v1.NodeMemoryPressure, "False"), cond(v1.NodeDiskPressure, "False"), cond(v1.NodePIDPressure, "False")},
			Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: ip}, {Type: v1.NodeHostName, Address: name}},
			NodeInfo:   v1.NodeSystemInfo{KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "fake://1", OSImage: "fake", KernelVersion: "6.1"}}}
	if _, err := f.cs.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		log.Fatal(err)
	}
}

func (f *fake) heartbeat(ctx context.Context, name string) {
	leases := f.cs.CoordinationV1().Leases(v1.NamespaceNodeLease)
	seconds := int32(40)
	for ; ctx.Err() == nil; time.Sleep(8 * time.Second) {
		now := metav1.NowMicro()
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(ctx, &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}}, metav1.CreateOptions{})
		} else if err == nil {
			lease.Spec.RenewTime = &now
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		if err != nil {
			log.Printf("lease %s: %v", name, err)
		}
	}
}

// syncAllocatable does as the kubelet: each extended resource in capacity is allocatable, and no other is.
func (f *fake) syncAllocatable(ctx context.Context, node *v1.Node) {
	differs := func(n *v1.Node) (changed bool) {
		for k, q := range n.Status.Capacity {
			if a, ok := n.Status.Allocatable[k]; helper.IsExtendedResourceName(k) && (!ok || a.Cmp(q) != 0) {
				n.Status.Allocatable[k], changed = q, true
			}
		}
		for k := range n.Status.Allocatable {
			if _, ok := n.Status.Capacity[k]; helper.IsExtendedResourceName(k) && !ok {
				delete(n.Status.Allocatable, k)
				changed = true
			}
		}
		return
	}
	if !f.names[node.Name] || !differs(node.DeepCopy()) {
		return
	}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := f.cs.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil || !differs(n) {
			return err
		}
		_, err = f.cs.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	}); err != nil {
		log.Printf("allocatable of %s: %v", node.Name, err)
	}
}
