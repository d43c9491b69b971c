// Marks the root of the module. It is built with the modules of a version of Kubernetes (hack/node-image/kubernetes).
module perdure.dev/hack/admission

go 1.26
