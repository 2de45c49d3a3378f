// Package peers keeps the conformance runner's packages in go.mod; the programs are there as tools.
package peers

import _ "k8s.io/kubernetes/test/e2e"
