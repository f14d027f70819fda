package main

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// byPlugin runs a fresh instance of every enabled filter plugin by itself, so that a wrong rule can be told from the
// rules before it. DynamicResources is left out: a second instance would register its index a second time.
func (s *stock) byPlugin(ctx context.Context) map[string]map[string]Status {
	registry, verdicts := plugins.NewInTreeRegistry(), map[string]map[string]Status{}
	for _, enabled := range s.framework.ListPlugins().Filter.Enabled {
		if enabled.Name == names.DynamicResources {
			continue
		}
		plugin, err := registry[enabled.Name](ctx, s.args(enabled.Name), s.framework)
		if err != nil {
			verdicts[enabled.Name] = map[string]Status{"*": {Code: fwk.Error.String(), Reasons: []string{err.Error()}}}
			continue
		}
		verdicts[enabled.Name] = s.alone(ctx, plugin)
	}
	return verdicts
}

func (s *stock) alone(ctx context.Context, plugin fwk.Plugin) map[string]Status {
	state, verdicts := framework.NewCycleState(), map[string]Status{}
	var result *fwk.PreFilterResult
	if preFilter, ok := plugin.(fwk.PreFilterPlugin); ok {
		var status *fwk.Status
		result, status = preFilter.PreFilter(ctx, state, s.pod, s.nodes)
		if !status.IsSuccess() {
			return map[string]Status{"*": statusOf(status)}
		}
	}
	for _, node := range s.nodes {
		name := node.Node().Name
		if !result.AllNodes() && !result.NodeNames.Has(name) {
			verdicts[name] = leftOut
			continue
		}
		status := plugin.(fwk.FilterPlugin).Filter(ctx, state, s.pod, node)
		if !status.IsSuccess() {
			verdicts[name] = Status{Code: status.Code().String(), Reasons: status.Reasons()}
		}
	}
	return verdicts
}
