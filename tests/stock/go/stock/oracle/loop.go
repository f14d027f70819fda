package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Backlog is pods to place one after another, each on the cluster that the last one has left.
type Backlog struct {
	Pods []*v1.Pod `json:"pods"`
}

// Placed tells how many of a backlog found a node, and how long all of them took.
type Placed struct {
	Error  string `json:"error,omitempty"`
	Ns     int64  `json:"ns"`
	Placed int    `json:"placed"`
}

// loop reads a case and then backlogs, and writes what became of each before it reads the next.
func loop(in io.Reader, out io.Writer) error {
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
	for {
		var backlog Backlog
		if err := decoder.Decode(&backlog); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("backlog: %w", err)
		}
		if err := encoder.Encode(s.placeAll(ctx, &backlog)); err != nil {
			return err
		}
	}
}

func (s *stock) placeAll(ctx context.Context, backlog *Backlog) *Placed {
	placed, start := &Placed{}, time.Now()
	for _, pod := range backlog.Pods {
		node, err := s.place(ctx, pod)
		if err != nil {
			placed.Error = err.Error()
			break
		}
		if node != "" {
			placed.Placed++
		}
	}
	placed.Ns = time.Since(start).Nanoseconds()
	return placed
}

// place runs one scheduling cycle and adds the pod to the cache on the node it ends with; "" where there is none.
func (s *stock) place(ctx context.Context, pod *v1.Pod) (string, error) {
	if err := s.update(ctx); err != nil {
		return "", err
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return "", err
	}
	result, err := s.scheduler.SchedulePod(ctx, s.framework, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
	if err != nil {
		return "", nil
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = result.SuggestedHost
	return result.SuggestedHost, s.scheduler.Cache.AddPod(klog.FromContext(ctx), bound)
}
