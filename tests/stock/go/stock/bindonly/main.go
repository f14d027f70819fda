// bindonly decides nothing: it lists the pods that wait and the nodes, and posts every Binding as fast as the API server
// takes them. For a pod with a claim it first writes an allocation: the next device of the node's first pool. No scheduler
// binds more pods a second on the same machine. With --finalizers it also protects each claim from deletion, which
// kube-scheduler does in a write of its own before it allocates devices. It is there for benchmarks.
package main

import (
	"context"
	"flag"
	"log"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// work is a pod with its node, and its claim with an allocation if it has one.
type work struct {
	pod   *v1.Pod
	node  string
	claim *resourceapi.ResourceClaim
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	workers := flag.Int("workers", 16, "bindings under way at the same time")
	finalizers := flag.Bool("finalizers", false, "add the finalizer to claims before they are allocated")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1 // no limit
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client := kubernetes.NewForConfigOrDie(config)
	ctx := context.Background()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		log.Fatal(err)
	}
	claims, devices := claimsAndDevices(ctx, client, pods.Items)
	queue := make(chan work)
	var posting sync.WaitGroup
	for range *workers {
		posting.Go(func() {
			for next := range queue {
				if err := bind(ctx, client, next, *finalizers); err != nil {
					log.Print(err)
				}
			}
		})
	}
	for i := range pods.Items {
		next := work{pod: &pods.Items[i], node: nodes.Items[i%len(nodes.Items)].Name}
		if len(next.pod.Spec.ResourceClaims) > 0 {
			slice := devices[next.node]
			next.claim = claims[types.NamespacedName{Namespace: next.pod.Namespace, Name: *next.pod.Spec.ResourceClaims[0].ResourceClaimName}]
			allocate(next.claim, next.pod, slice, (i/len(nodes.Items))%len(slice.Spec.Devices))
		}
		queue <- next
	}
	close(queue)
	posting.Wait()
}

// claimsAndDevices lists claims by name, and the slice with devices of each node, if a pod has a claim.
func claimsAndDevices(ctx context.Context, client kubernetes.Interface, pods []v1.Pod) (map[types.NamespacedName]*resourceapi.ResourceClaim, map[string]*resourceapi.ResourceSlice) {
	claims, devices := map[types.NamespacedName]*resourceapi.ResourceClaim{}, map[string]*resourceapi.ResourceSlice{}
	if len(pods) == 0 || len(pods[0].Spec.ResourceClaims) == 0 {
		return claims, devices
	}
	listed, err := client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	slices, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range listed.Items {
		claim := &listed.Items[i]
		claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim
	}
	for i := range slices.Items {
		if slice := &slices.Items[i]; slice.Spec.NodeName != nil && len(slice.Spec.Devices) > 0 {
			devices[*slice.Spec.NodeName] = slice
		}
	}
	return claims, devices
}

// allocate gives the claim a device of the slice, and reserves it for the pod, as kube-scheduler writes it.
func allocate(claim *resourceapi.ResourceClaim, pod *v1.Pod, slice *resourceapi.ResourceSlice, index int) {
	device, request := slice.Spec.Devices[index], claim.Spec.Devices.Requests[0]
	result := resourceapi.DeviceRequestAllocationResult{
		Request: request.Name, Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: device.Name,
	}
	if device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations {
		share := uuid.NewUUID()
		result.ShareID = &share
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
		for name, amount := range request.Exactly.Capacity.Requests {
			result.ConsumedCapacity[name] = amount
		}
	}
	on := v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{*slice.Spec.NodeName}}
	claim.Status = resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{
			Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
			NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{on}}}},
		},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
}

// bind writes the allocation, if there is one, and then the Binding.
func bind(ctx context.Context, client kubernetes.Interface, next work, finalizers bool) error {
	if claim := next.claim; claim != nil {
		claims := client.ResourceV1().ResourceClaims(claim.Namespace)
		if finalizers {
			claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
			protected, err := claims.Update(ctx, claim, metav1.UpdateOptions{})
			if err != nil {
				return err
			}
			protected.Status = claim.Status
			claim = protected
		}
		if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: next.pod.Namespace, Name: next.pod.Name, UID: next.pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: next.node},
	}
	return client.CoreV1().Pods(next.pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}
