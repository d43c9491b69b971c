module perdure.dev/hack/versitygw

go 1.26

