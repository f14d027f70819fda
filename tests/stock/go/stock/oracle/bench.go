package main

import (
	"context"
	"sort"
	"time"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Timing holds medians in nanoseconds, each over all nodes with the profile's parallelism.
type Timing struct {
	Name       string `json:"name,omitempty"`
	Error      string `json:"error,omitempty"`
	FilterNs   int64  `json:"filterNs"`             // pre-filters and filters
	ScoreNs    int64  `json:"scoreNs,omitempty"`    // pre-filters, pre-scores and scores, on the feasible nodes
	ScheduleNs int64  `json:"scheduleNs,omitempty"` // the scheduler's own SchedulePod, where a node is feasible
	PreemptNs  int64  `json:"preemptNs,omitempty"`  // else: filters, and victims on every node
	Feasible   int    `json:"feasible"`
	Candidates int    `json:"candidates"`
}

func measure(c *Case, rounds int) *Timing {
	t := &Timing{Name: c.Name}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := newStock(ctx, c)
	if err != nil {
		t.Error = err.Error()
		return t
	}
	var d *decision
	t.FilterNs = median(rounds, func() { d = s.filterInParallel(ctx) })
	t.Feasible = len(d.feasible)
	if t.Feasible > 0 {
		t.ScoreNs = median(rounds, func() { s.scoreNodes(ctx, d.feasible) })
		t.ScheduleNs = median(rounds, func() { s.schedule(ctx) })
		return t
	}
	t.PreemptNs = median(rounds, func() {
		d = s.filterInParallel(ctx)
		if err := d.preempt(ctx); err != nil {
			t.Error = err.Error()
		}
	})
	t.Candidates = len(d.Candidates)
	return t
}

func median(rounds int, run func()) int64 {
	times := make([]int64, rounds)
	for i := range times {
		start := time.Now()
		run()
		times[i] = time.Since(start).Nanoseconds()
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return times[rounds/2]
}

// filterInParallel filters as the scheduler does where no extender and no limit of nodes stands in the way.
func (s *stock) filterInParallel(ctx context.Context) *decision {
	state, statuses := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
	d := &decision{stock: s, Answer: &Answer{}, state: state, statuses: statuses}
	s.framework.RunPreFilterPlugins(ctx, state, s.pod)
	verdicts := make([]*fwk.Status, len(s.nodes))
	check := func(i int) {
		verdicts[i] = s.framework.RunFilterPluginsWithNominatedPods(ctx, state, s.pod, s.nodes[i])
	}
	s.framework.Parallelizer().Until(ctx, len(s.nodes), check, "bench")
	for i, verdict := range verdicts {
		if verdict.IsSuccess() {
			d.feasible = append(d.feasible, s.nodes[i])
		} else {
			statuses.Set(s.nodes[i].Node().Name, verdict)
		}
	}
	return d
}

func (s *stock) scoreNodes(ctx context.Context, nodes []fwk.NodeInfo) {
	state := framework.NewCycleState()
	s.framework.RunPreFilterPlugins(ctx, state, s.pod)
	s.framework.RunPreScorePlugins(ctx, state, s.pod, nodes)
	s.framework.RunScorePlugins(ctx, state, s.pod, nodes)
}

func (s *stock) schedule(ctx context.Context) {
	pod, err := framework.NewPodInfo(s.pod)
	if err != nil {
		panic(err)
	}
	_, _ = s.scheduler.SchedulePod(ctx, s.framework, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: pod})
}
