// bindonly decides nothing: it lists the pods that wait and the nodes, and posts every Binding as fast as the API server
// takes them. No scheduler binds more pods a second on the same machine. It is there for benchmarks.
package main

import (
	"context"
	"flag"
	"log"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	workers := flag.Int("workers", 16, "bindings under way at the same time")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1 // no limit
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client := kubernetes.NewForConfigOrDie(config).CoreV1()
	ctx := context.Background()
	nodes, err := client.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	pods, err := client.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		log.Fatal(err)
	}
	bindings := make(chan *v1.Binding)
	var posting sync.WaitGroup
	for range *workers {
		posting.Go(func() {
			for binding := range bindings {
				if err := client.Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
					log.Print(err)
				}
			}
		})
	}
	for i, pod := range pods.Items {
		node := nodes.Items[i%len(nodes.Items)].Name
		bindings <- &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: node},
		}
	}
	close(bindings)
	posting.Wait()
}
