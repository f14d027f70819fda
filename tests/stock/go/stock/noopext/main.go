// noopext is an extender that decides nothing: what any HTTP extender costs at the least. It is there for benchmarks.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	address := flag.String("address", "127.0.0.1:8889", "host:port to listen on")
	flag.Parse()
	http.HandleFunc("POST /scheduler/filter", answer(filter))
	http.HandleFunc("POST /scheduler/prioritize", answer(prioritize))
	log.Fatal(http.ListenAndServe(*address, nil))
}

func answer[Result any](verb func(*extenderv1.ExtenderArgs) Result) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(verb(&args)); err != nil {
			log.Print(err)
		}
	}
}

// filter passes every node.
func filter(args *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult {
	return &extenderv1.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
}

// prioritize scores every node 0.
func prioritize(args *extenderv1.ExtenderArgs) extenderv1.HostPriorityList {
	priorities := extenderv1.HostPriorityList{}
	if args.NodeNames != nil {
		for _, name := range *args.NodeNames {
			priorities = append(priorities, extenderv1.HostPriority{Host: name})
		}
	}
	if args.Nodes != nil {
		for _, node := range args.Nodes.Items {
			priorities = append(priorities, extenderv1.HostPriority{Host: node.Name})
		}
	}
	return priorities
}
