package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"
)

// stock is the stock scheduler with a case's cluster in its cache, not running.
type stock struct {
	scheduler *scheduler.Scheduler
	framework framework.Framework
	profile   config.KubeSchedulerProfile
	nodes     []fwk.NodeInfo
	budgets   []*policyv1.PodDisruptionBudget
	pod       *v1.Pod
}

// newStock gives a scheduler whose informers run until ctx is done.
func newStock(ctx context.Context, c *Case) (*stock, error) {
	if c.Pod == nil {
		return nil, errors.New("pod: missing")
	}
	objects, err := c.objects()
	if err != nil {
		return nil, err
	}
	configuration, err := c.configuration()
	if err != nil {
		return nil, err
	}
	profile, err := profileOf(c.Pod, configuration.Profiles)
	if err != nil {
		return nil, err
	}
	sched, err := synced(ctx, objects, configuration)
	if err != nil {
		return nil, err
	}
	s := &stock{sched, sched.Profiles[profile.SchedulerName], profile, nil, disruptionBudgets(objects), c.Pod}
	return s, s.update(ctx)
}

// snapshotOf gives the snapshot that the frameworks of a scheduler share.
func snapshotOf(sched *scheduler.Scheduler) *cache.Snapshot {
	for _, profile := range sched.Profiles {
		return profile.SnapshotSharedLister().(*cache.Snapshot)
	}
	return nil
}

// update brings the snapshot up to date with the cache, as the scheduler does at the start of each cycle.
func (s *stock) update(ctx context.Context) (err error) {
	snapshot := snapshotOf(s.scheduler)
	if err := s.scheduler.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return err
	}
	s.nodes, err = snapshot.NodeInfos().List()
	return err
}

// profileOf is the pod's profile; the first one for a pod that names no scheduler.
func profileOf(pod *v1.Pod, profiles []config.KubeSchedulerProfile) (config.KubeSchedulerProfile, error) {
	for _, profile := range profiles {
		if pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == profile.SchedulerName {
			return profile, nil
		}
	}
	return config.KubeSchedulerProfile{}, fmt.Errorf("profile not found for scheduler name %q", pod.Spec.SchedulerName)
}

func synced(
	ctx context.Context, objects []runtime.Object, c *config.KubeSchedulerConfiguration,
) (*scheduler.Scheduler, error) {
	return syncedWith(ctx, fake.NewSimpleClientset(objects...), c, nil)
}

func syncedWith(
	ctx context.Context, client *fake.Clientset, c *config.KubeSchedulerConfiguration, registry frameworkruntime.Registry,
) (*scheduler.Scheduler, error) {
	informers := scheduler.NewInformerFactory(client, 0, nil)
	// Without a channel, because nothing would receive from it, and each event would block its sender for ever.
	recorders := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	sched, err := scheduler.New(ctx, client, informers, nil, recorders,
		scheduler.WithProfiles(c.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithParallelism(c.Parallelism),
		scheduler.WithPercentageOfNodesToScore(ptr.To[int32](100)))
	if err != nil {
		return nil, err
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	return sched, handled(ctx, sched)
}

// handled waits until every object is in the scheduler's cache. WaitForHandlersSync looks once and then every 100 ms,
// which is long beside a small case: so it is asked in short attempts.
func handled(ctx context.Context, sched *scheduler.Scheduler) error {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, time.Millisecond)
		err := sched.WaitForHandlersSync(attempt)
		cancel()
		if err == nil {
			return nil
		}
	}
	return ctx.Err()
}

// args are the arguments of a plugin in the profile, nil if it takes none.
func (s *stock) args(plugin string) runtime.Object {
	for _, c := range s.profile.PluginConfig {
		if c.Name == plugin {
			return c.Args
		}
	}
	return nil
}
