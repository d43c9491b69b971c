module perdure.dev/hack/containerd

go 1.26.8
