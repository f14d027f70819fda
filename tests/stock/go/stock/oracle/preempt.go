package main

import (
	"context"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// preempt tries the nodes where evicting pods may help, from the first one on, up to the profile's number of candidates.
func (d *decision) preempt(ctx context.Context) error {
	if !enabled(d.framework.ListPlugins().PostFilter, defaultpreemption.Name) {
		d.PreemptMessage = "preemption is not enabled"
		return nil
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(ctx, d.args(defaultpreemption.Name), d.framework, features)
	if err != nil {
		return err
	}
	eligible, message := plugin.PodEligibleToPreemptOthers(ctx, d.pod, d.statuses.Get(d.pod.Status.NominatedNodeName))
	if !eligible {
		d.PreemptMessage = message
		return nil
	}
	nodes, err := d.statuses.NodesForStatusCode(d.framework.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		d.PreemptMessage = "no potential nodes"
		return nil
	}
	_, enough := plugin.GetOffsetAndNumCandidates(int32(len(nodes)))
	candidates, _, err := plugin.Evaluator.DryRunPreemption(ctx, d.state, d.pod, nodes, d.budgets, 0, enough)
	if err != nil {
		d.PreemptMessage = err.Error()
	}
	d.Candidates = victims(candidates)
	if best := plugin.Evaluator.SelectCandidate(ctx, candidates); best != nil {
		d.Nominated = best.Name()
	}
	return nil
}

func enabled(set config.PluginSet, name string) bool {
	for _, plugin := range set.Enabled {
		if plugin.Name == name {
			return true
		}
	}
	return false
}

// candidate is what both versions of the type of a candidate have.
type candidate interface {
	Name() string
	Victims() *extenderv1.Victims
}

func victims[C candidate](candidates []C) map[string]Victims {
	byNode := map[string]Victims{}
	for _, candidate := range candidates {
		pods := []string{}
		for _, pod := range candidate.Victims().Pods {
			pods = append(pods, pod.Namespace+"/"+pod.Name)
		}
		byNode[candidate.Name()] = Victims{Pods: pods, NumPDBViolations: candidate.Victims().NumPDBViolations}
	}
	return byNode
}
