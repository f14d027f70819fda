package main

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

// Case is a cluster, and a pod to place in it.
type Case struct {
	Name    string `json:"name"`
	Cluster struct {
		Items []json.RawMessage `json:"items"`
	} `json:"cluster"`
	Pod    *v1.Pod         `json:"pod"`
	Config json.RawMessage `json:"config"`
}

func (c *Case) objects() ([]runtime.Object, error) {
	decoder := clientscheme.Codecs.UniversalDeserializer()
	objects := make([]runtime.Object, 0, len(c.Cluster.Items))
	for i, item := range c.Cluster.Items {
		object, _, err := decoder.Decode(item, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("cluster.items[%d]: %w", i, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func (c *Case) configuration() (*config.KubeSchedulerConfiguration, error) {
	if len(c.Config) == 0 {
		return latest.Default()
	}
	object, kind, err := scheme.Codecs.UniversalDecoder().Decode(c.Config, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	configuration, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("config: want a KubeSchedulerConfiguration, got %s", kind)
	}
	configuration.APIVersion = kind.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(configuration); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return configuration, nil
}

func disruptionBudgets(objects []runtime.Object) []*policyv1.PodDisruptionBudget {
	var budgets []*policyv1.PodDisruptionBudget
	for _, object := range objects {
		if budget, ok := object.(*policyv1.PodDisruptionBudget); ok {
			budgets = append(budgets, budget)
		}
	}
	return budgets
}
