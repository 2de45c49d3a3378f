// Package peers pins, together with go.mod, what the conformance runner is built from.
package peers

import _ "k8s.io/kubernetes/test/e2e"
