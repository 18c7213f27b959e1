// Package deviceplugin has the messages of Kubernetes' device plug-in protocol (v1beta1) that are used.
package deviceplugin

//go:generate ../../scripts/protoc deviceplugin.proto
