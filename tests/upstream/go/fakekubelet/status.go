package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

func set(status *v1.PodStatus, t v1.PodConditionType, value v1.ConditionStatus, reason string) {
	c := v1.PodCondition{Type: t, Status: value, Reason: reason, LastTransitionTime: metav1.Now()}
	for i := range status.Conditions {
		if status.Conditions[i].Type == t {
			status.Conditions[i] = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}

func (f *fake) run(ctx context.Context, pod *v1.Pod) error {
	status := *pod.Status.DeepCopy()
	now := metav1.Now()
	status.Phase, status.StartTime = v1.PodRunning, &now
	status.HostIP, status.PodIP = "10.1.0.1", "10.2.0.1"
	status.HostIPs, status.PodIPs = []v1.HostIP{{IP: status.HostIP}}, []v1.PodIP{{IP: status.PodIP}}
	for _, t := range []v1.PodConditionType{v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady} {
		set(&status, t, v1.ConditionTrue, "")
	}
	yes := true
	running := func(c v1.Container) v1.ContainerStatus {
		return v1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "fake", ContainerID: "fake://" + c.Name, Ready: true, Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}
	}
	status.ContainerStatuses, status.InitContainerStatuses = nil, nil
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, running(c))
	}
	for _, c := range pod.Spec.InitContainers {
		s := running(c)
		if c.RestartPolicy == nil {
			s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, s)
	}
	_, _, _, err := podutil.PatchPodStatus(ctx, f.cs, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
	return err
}

func (f *fake) finish(ctx context.Context, pod *v1.Pod, phase v1.PodPhase, reason, message string) error {
	status := *pod.Status.DeepCopy()
	status.Phase = phase
	if reason != "" {
		status.Reason, status.Message = reason, message
	}
	code := int32(0)
	if phase == v1.PodFailed {
		code = 1
	}
	set(&status, v1.PodReady, v1.ConditionFalse, "PodCompleted")
	set(&status, v1.ContainersReady, v1.ConditionFalse, "PodCompleted")
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
		status.ContainerStatuses[i].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.Now()}}
	}
	_, _, _, err := podutil.PatchPodStatus(ctx, f.cs, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
	return err
}

// stopTime is how long the containers take to stop: the pre-stop sleep, at most the grace period.
func stopTime(pod *v1.Pod) time.Duration {
	var seconds int64
	for _, c := range pod.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			seconds = max(seconds, c.Lifecycle.PreStop.Sleep.Seconds)
		}
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		seconds = min(seconds, *g)
	}
	return time.Duration(seconds) * time.Second
}

var short = regexp.MustCompile(`\bsleep (\d)\b`)

// ends says whether the command comes to an end by itself: "sleep N" below ten seconds, perhaps with "exit 1".
func ends(pod *v1.Pod) (time.Duration, v1.PodPhase, bool) {
	if pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
		return 0, "", false
	}
	c := pod.Spec.Containers[0]
	line := strings.Join(append(append([]string{}, c.Command...), c.Args...), " ")
	if line == "true" {
		return 500 * time.Millisecond, v1.PodSucceeded, true
	}
	m := short.FindStringSubmatch(line)
	if m == nil || strings.Contains(line, "while") {
		return 0, "", false
	}
	n, _ := strconv.Atoi(m[1])
	if strings.Contains(line, "exit 1") {
		return time.Duration(n) * time.Second, v1.PodFailed, true
	}
	return time.Duration(n) * time.Second, v1.PodSucceeded, true
}
