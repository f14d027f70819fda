package main

import fwk "k8s.io/kube-scheduler/framework"

// Answer is what the plugins decide on one case. Maps are by node unless said otherwise.
type Answer struct {
	Name  string `json:"name,omitempty"`
	Error string `json:"error,omitempty"`

	// PreFilter is the verdict on the pod before any node is looked at; PreFilterNodes, if not nil, are the only nodes
	// that pre-filters leave.
	PreFilter      *Status  `json:"prefilter,omitempty"`
	PreFilterNodes []string `json:"prefilterNodes,omitempty"`

	// Filter is the first refusal, or success. ByPlugin is by plugin, then by node: what each filter says by itself;
	// successes are left out, and "*" in place of a node stands for all of them.
	Filter   map[string]Status            `json:"filter"`
	ByPlugin map[string]map[string]Status `json:"byPlugin"`
	Feasible []string                     `json:"feasible"`

	// By node, then by plugin: Raw before and Scores after normalising and weighting.
	Scores map[string]map[string]int64 `json:"scores,omitempty"`
	Raw    map[string]map[string]int64 `json:"raw,omitempty"`
	Total  map[string]int64            `json:"total,omitempty"`

	// Where no node is feasible: whom preemption would evict on every node where it helps, and the node it picks.
	Candidates     map[string]Victims `json:"candidates,omitempty"`
	Nominated      string             `json:"nominated,omitempty"`
	PreemptMessage string             `json:"preemptMessage,omitempty"`
}

// Status is a plugin's verdict.
type Status struct {
	Code    string   `json:"code"`
	Plugin  string   `json:"plugin,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// Victims are pods as namespace/name, the most important first.
type Victims struct {
	Pods             []string `json:"pods"`
	NumPDBViolations int64    `json:"numPDBViolations"`
}

// leftOut is the verdict on nodes that are not among a pre-filter's nodes.
var leftOut = Status{Code: fwk.UnschedulableAndUnresolvable.String(), Reasons: []string{"prefilter result"}}

func statusOf(s *fwk.Status) Status {
	if s.IsSuccess() {
		return Status{Code: fwk.Success.String()}
	}
	return Status{Code: s.Code().String(), Plugin: s.Plugin(), Reasons: s.Reasons()}
}
