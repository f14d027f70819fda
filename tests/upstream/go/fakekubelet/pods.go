package main

import (
	"context"
	"log"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/util/pod"
)

func (f *fake) work(ctx context.Context) {
	for {
		key, quit := f.queue.Get()
		if quit {
			return
		}
		again, err := f.sync(ctx, key)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !strings.Contains(err.Error(), " not found") && !strings.Contains(err.Error(), "field is immutable") {
			log.Printf("%s: %v", key, err)
			again = time.Second
		}
		if again > 0 {
			f.queue.AddAfter(key, again)
		}
		f.queue.Forget(key)
		f.queue.Done(key)
	}
}

// sync brings a pod one step on, and says when to look again.
func (f *fake) sync(ctx context.Context, key string) (time.Duration, error) {
	o, ok, _ := f.pods.GetStore().GetByKey(key)
	if !ok {
		return 0, nil
	}
	pod := o.(*v1.Pod)
	if !f.names[pod.Spec.NodeName] { // a successor of the same name, which is not bound yet
		return 0, nil
	}
	f.mu.Lock()
	s := f.by[pod.UID]
	if s == nil {
		s = &state{bound: time.Now(), node: pod.Spec.NodeName}
		f.by[pod.UID] = s
	}
	s.pod = pod
	f.mu.Unlock()
	terminal := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	if pod.DeletionTimestamp != nil {
		if s.died.IsZero() {
			s.died = time.Now()
		}
		if wait := time.Until(s.died.Add(stopTime(pod))); !terminal && wait > 0 {
			return wait, nil
		}
		if !terminal {
			if err := f.finish(ctx, pod, v1.PodSucceeded, "", ""); err != nil {
				return 0, err
			}
		}
		f.release(s)
		if s.deleted {
			return 0, nil
		}
		s.deleted = true
		zero := int64(0)
		return 0, f.cs.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	}
	if terminal {
		f.release(s)
		return 0, nil
	}
	if !s.admitted {
		if reason, message := f.admit(ctx, s, pod); reason != "" {
			log.Printf("REJECTED %s on %s: %s: %s", key, pod.Spec.NodeName, reason, message)
			return 0, f.finish(ctx, pod, v1.PodFailed, reason, "Pod was rejected: "+message)
		}
	}
	if pod.Status.Phase != v1.PodRunning {
		if wait := time.Until(s.bound.Add(startDelay)); wait > 0 {
			return wait, nil
		}
		if why := f.waitsFor(ctx, pod); why != "" {
			if !s.complained && time.Since(s.bound) > 3*time.Second {
				s.complained = true
				log.Printf("WAITS %s on %s: %s", key, pod.Spec.NodeName, why)
			}
			return 300 * time.Millisecond, nil
		}
		return 0, f.run(ctx, pod)
	}
	if s.started.IsZero() {
		s.started = time.Now()
	}
	if c := pod.Status.ContainerStatuses; pod.Spec.RestartPolicy == v1.RestartPolicyAlways && len(c) > 0 && c[0].RestartCount < 3 && strings.Contains(strings.Join(pod.Spec.Containers[0].Command, " "), "exit 1") {
		status := *pod.Status.DeepCopy()
		status.ContainerStatuses[0].RestartCount++
		time.Sleep(time.Second)
		_, _, _, err := podutil.PatchPodStatus(ctx, f.cs, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
		return 0, err
	}
	if after, phase, ok := ends(pod); ok {
		if wait := time.Until(s.started.Add(after)); wait > 0 {
			return wait, nil
		}
		return 0, f.finish(ctx, pod, phase, "", "")
	}
	return 0, nil
}

func (f *fake) release(s *state) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.admitted = false
}

type noHelp struct{}

func (noHelp) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason, _ lifecycle.Operation) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

// admit runs the kubelet's own predicates; a reason means no.
func (f *fake) admit(ctx context.Context, s *state, pod *v1.Pod) (string, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var others []*v1.Pod
	for uid, o := range f.by {
		if uid != pod.UID && o.admitted && o.node == pod.Spec.NodeName {
			others = append(others, o.pod)
		}
	}
	getNode := func(ctx context.Context, _ bool) (*v1.Node, error) {
		return f.cs.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	}
	handler := lifecycle.NewPredicateAdmitHandler(getNode, noHelp{}, func(*framework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil })
	if r := handler.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others}); !r.Admit {
		return r.Reason, r.Message
	}
	s.admitted = true
	return "", ""
}

// waitsFor says what the kubelet would wait for: claims that are reserved for the pod, volumes that are bound and reach the node.
func (f *fake) waitsFor(ctx context.Context, pod *v1.Pod) string {
	claims := map[string]bool{}
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			claims[*c.ResourceClaimName] = true
			continue
		}
		for _, s := range pod.Status.ResourceClaimStatuses {
			if s.Name == c.Name && s.ResourceClaimName != nil {
				claims[*s.ResourceClaimName] = true
			}
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		claims[e.ResourceClaimName] = true
	}
	for name := range claims {
		c, err := f.cs.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		reserved := false
		for _, r := range c.Status.ReservedFor {
			reserved = reserved || r.UID == pod.UID
		}
		if c.Status.Allocation == nil || !reserved {
			return "claim " + name + " is not allocated and reserved"
		}
	}
	for _, v := range pod.Spec.Volumes {
		name := ""
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		} else if v.Ephemeral != nil {
			name = pod.Name + "-" + v.Name
		} else {
			continue
		}
		pvc, err := f.cs.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if pvc.Status.Phase != v1.ClaimBound {
			return "volume claim " + name + " is " + string(pvc.Status.Phase)
		}
		pv, err := f.cs.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
			node, err := f.cs.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			selector, err := corev1helpers.NewNodeSelector(pv.Spec.NodeAffinity.Required)
			if err != nil || !selector.Match(node) {
				return "volume " + pv.Name + " does not reach the node"
			}
		}
	}
	return ""
}
