package main

import (
	"context"
	"fmt"
	"sort"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// decision is one scheduling attempt under way.
type decision struct {
	*stock
	*Answer
	state    fwk.CycleState
	statuses *framework.NodeToStatus // of the infeasible nodes
	feasible []fwk.NodeInfo
}

func answer(c *Case, individually bool) (a *Answer) {
	a = &Answer{Name: c.Name, Filter: map[string]Status{}, ByPlugin: map[string]map[string]Status{}}
	defer func() {
		if r := recover(); r != nil {
			a.Error = fmt.Sprint("panic: ", r)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := newStock(ctx, c)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	d := &decision{stock: s, Answer: a, state: framework.NewCycleState(), statuses: framework.NewDefaultNodeToStatus()}
	if err := d.decide(ctx, individually); err != nil {
		a.Error = err.Error()
	}
	return a
}

func (d *decision) decide(ctx context.Context, individually bool) error {
	status := d.filter(ctx)
	if individually {
		d.ByPlugin = d.byPlugin(ctx)
	}
	if status.Code() == fwk.Error {
		return status.AsError()
	}
	if len(d.feasible) > 0 {
		return d.score(ctx)
	}
	if status.IsSuccess() {
		return d.preempt(ctx)
	}
	return nil
}

// filter runs the pre-filters, whose status it returns, and if they pass the filters on every node.
func (d *decision) filter(ctx context.Context) *fwk.Status {
	result, status, _ := d.framework.RunPreFilterPlugins(ctx, d.state, d.pod)
	verdict := statusOf(status)
	d.PreFilter = &verdict
	if !result.AllNodes() {
		d.PreFilterNodes = append([]string{}, result.NodeNames.UnsortedList()...)
		sort.Strings(d.PreFilterNodes)
	}
	if status.IsSuccess() {
		for _, node := range d.nodes {
			d.filterNode(ctx, result, node)
		}
	}
	sort.Strings(d.Feasible)
	return status
}

func (d *decision) filterNode(ctx context.Context, result *fwk.PreFilterResult, node fwk.NodeInfo) {
	name := node.Node().Name
	if !result.AllNodes() && !result.NodeNames.Has(name) {
		d.Filter[name] = leftOut
		d.statuses.Set(name, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, leftOut.Reasons...))
		return
	}
	status := d.framework.RunFilterPluginsWithNominatedPods(ctx, d.state, d.pod, node)
	d.Filter[name] = statusOf(status)
	if !status.IsSuccess() {
		d.statuses.Set(name, status)
		return
	}
	d.feasible = append(d.feasible, node)
	d.Feasible = append(d.Feasible, name)
}

func (d *decision) score(ctx context.Context) error {
	if status := d.framework.RunPreScorePlugins(ctx, d.state, d.pod, d.feasible); !status.IsSuccess() {
		return fmt.Errorf("prescore: %w", status.AsError())
	}
	scored, status := d.framework.RunScorePlugins(ctx, d.state, d.pod, d.feasible)
	if !status.IsSuccess() {
		return fmt.Errorf("score: %w", status.AsError())
	}
	d.Scores, d.Raw, d.Total = map[string]map[string]int64{}, map[string]map[string]int64{}, map[string]int64{}
	for _, node := range scored {
		d.Scores[node.Name], d.Total[node.Name] = byName(node.Scores), node.TotalScore
	}
	for _, node := range d.feasible {
		raw, status := d.framework.RunRawScorePlugins(ctx, d.state, d.pod, node)
		if !status.IsSuccess() {
			return fmt.Errorf("raw score: %w", status.AsError())
		}
		d.Raw[node.Node().Name] = byName(raw)
	}
	return nil
}

func byName(scores []fwk.PluginScore) map[string]int64 {
	m := make(map[string]int64, len(scores))
	for _, s := range scores {
		m[s.Name] = s.Score
	}
	return m
}
