// Validates CustomResourceDefinitions and ValidatingAdmissionPolicies as the API server does when it is asked to create them, with the
// code of the version of Kubernetes that this program is built with, and without a cluster.
//
// Standard input is a stream of manifests, of which other kinds are ignored. Standard output is a JSON document with an entry for each
// manifest: its kind and name, the errors, and for each version of a CRD the estimated cost of its rules.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	crd "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	policyinstall "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	policy "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

type result struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Errors []string `json:"errors"`
	Costs  []cost   `json:"costs,omitempty"`
}

// cost is the estimated cost of the rules of a version of a CRD, and its shares of the limits.
type cost struct {
	Version string  `json:"version"`
	Total   float64 `json:"total"`   // of the limit of all rules; 1 is the limit
	Highest float64 `json:"highest"` // of the limit of one rule
	Rule    string  `json:"rule"`    // the one with the highest cost
}

func main() {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	policyinstall.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme).UniversalDecoder(
		apiextensions.SchemeGroupVersion, admissionregistration.SchemeGroupVersion)
	results := []result{}
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		exitOn(err)
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		exitOn(yaml.Unmarshal(text, &head))
		found := result{Kind: head.Kind, Name: head.Metadata.Name, Errors: []string{}}
		switch head.Kind {
		case "CustomResourceDefinition":
			definition := &apiextensions.CustomResourceDefinition{}
			exitOn(runtime.DecodeInto(decoder, text, definition))
			found.addErrors(validate(definition))
			for _, version := range definition.Spec.Versions {
				found.Costs = append(found.Costs, costOf(definition, version))
			}
		case "ValidatingAdmissionPolicy":
			definition := &admissionregistration.ValidatingAdmissionPolicy{}
			exitOn(runtime.DecodeInto(decoder, text, definition))
			found.addErrors(policy.ValidateValidatingAdmissionPolicy(definition))
		case "ValidatingAdmissionPolicyBinding":
			definition := &admissionregistration.ValidatingAdmissionPolicyBinding{}
			exitOn(runtime.DecodeInto(decoder, text, definition))
			found.addErrors(policy.ValidateValidatingAdmissionPolicyBinding(definition))
		default:
			continue
		}
		results = append(results, found)
	}
	exitOn(json.NewEncoder(os.Stdout).Encode(results))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *result) addErrors(list field.ErrorList) {
	for _, each := range list {
		r.Errors = append(r.Errors, each.Error())
	}
}

func validate(definition *apiextensions.CustomResourceDefinition) field.ErrorList {
	for _, version := range definition.Spec.Versions {
		if version.Storage { // the API server sets it before it validates
			definition.Status.StoredVersions = []string{version.Name}
		}
	}
	return crd.ValidateCustomResourceDefinition(context.Background(), definition)
}

// costOf adds up the costs that the API server estimates, of which it only tells those above the limits.
func costOf(definition *apiextensions.CustomResourceDefinition, version apiextensions.CustomResourceDefinitionVersion) cost {
	validation := definition.Spec.Validation // that of all versions, if they have the same one
	if validation == nil {
		validation = version.Schema
	}
	schema := validation.OpenAPIV3Schema
	found := cost{Version: version.Name}
	walk(schema, crd.RootCELContext(schema), field.NewPath("openAPIV3Schema"), &found)
	return found
}

func walk(schema *apiextensions.JSONSchemaProps, scope *crd.CELSchemaContext, path *field.Path, found *cost) {
	if len(schema.XValidations) > 0 {
		info, err := scope.TypeInfo()
		exitOn(err)
		rules, err := schemacel.Compile(
			info.Schema, info.DeclType, celconfig.PerCallLimit, baseEnvironment, schemacel.NewExpressionsEnvLoader())
		exitOn(err)
		for i, rule := range rules {
			times := rule.MaxCardinality
			if scope.MaxCardinality != nil {
				times = *scope.MaxCardinality
			}
			estimate := float64(product(rule.MaxCost, times))
			found.Total += estimate / crd.StaticEstimatedCRDCostLimit
			if share := estimate / crd.StaticEstimatedCostLimit; share > found.Highest {
				found.Highest, found.Rule = share, path.Child("x-kubernetes-validations").Index(i).String()
			}
		}
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		walk(&property, scope.ChildPropertyContext(&property, name), path.Child("properties").Key(name), found)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		items := schema.Items.Schema
		walk(items, scope.ChildItemsContext(items), path.Child("items"), found)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		values := schema.AdditionalProperties.Schema
		walk(values, scope.ChildAdditionalPropertiesContext(values), path.Child("additionalProperties"), found)
	}
}

func product(one, other uint64) uint64 {
	if high, low := bits.Mul64(one, other); high == 0 {
		return low
	}
	return math.MaxUint64
}

// baseEnvironment is that of new CRDs. Before Kubernetes 1.35, its constructor has a second argument: whether costs are strict.
var baseEnvironment = func() *environment.EnvSet {
	create := reflect.ValueOf(environment.MustBaseEnvSet)
	arguments := []reflect.Value{reflect.ValueOf(environment.DefaultCompatibilityVersion()), reflect.ValueOf(true)}
	return create.Call(arguments[:create.Type().NumIn()])[0].Interface().(*environment.EnvSet)
}()
