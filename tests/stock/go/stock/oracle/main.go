// oracle answers scheduling cases with the stock scheduler's own plugins.
//
// It reads JSON values, one a case, on standard input and writes one JSON line each:
//
//	case    {"name", "cluster": v1 List, "pod": the pod to place, "config": a KubeSchedulerConfiguration, if not the default}
//	answer  see Answer
//
// Of the configuration the pod's profile is used; the first one for a pod that names no scheduler. A case that cannot be
// answered has an "error" in its answer.
// With --bench it reads one case, without a pod, and then one Step after another, and writes the Timing of each; with
// --loop one Backlog after another, and writes how many of its pods were Placed. With --groups each case has no pod but one
// group with its pods, and the answer is a GroupAnswer.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

func main() {
	timed := flag.Bool("bench", false, "time decisions on one cluster, with a bind after each")
	looped := flag.Bool("loop", false, "place pods one after another on one cluster")
	grouped := flag.Bool("groups", false, "run one cycle for the pod group of each case")
	gates := flag.String("feature-gates", "", "feature gates, like GenericWorkload=true")
	individually := flag.Bool("individually", true, "also run every filter plugin by itself on every node")
	klog.InitFlags(nil)
	flag.Parse()
	metrics.Register()
	if err := utilfeature.DefaultMutableFeatureGate.Set(*gates); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(2)
	}
	run := bench
	if *looped {
		run = loop
	} else if *grouped {
		run = serveGroups
	} else if !*timed {
		run = func(in io.Reader, out io.Writer) error { return serve(in, out, *individually) }
	}
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer, individually bool) error {
	decoder, buffer := json.NewDecoder(bufio.NewReaderSize(in, 1<<20)), bufio.NewWriter(out)
	encoder := json.NewEncoder(buffer)
	for number := 1; ; number++ {
		var c Case
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("case %d: %w", number, err)
		}
		if err := errors.Join(encoder.Encode(answer(&c, individually)), buffer.Flush()); err != nil {
			return err
		}
	}
}
