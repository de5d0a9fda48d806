package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
)

// A key of the configuration file.
type key struct {
	path    string // engine.adaptive.low, policies[].name
	value   string // what may stand there
	missing string // what is in force without it; "" = nothing
	meaning string
}

// A node is a part of a JSON schema, as far as this one goes.
type node struct {
	Title       string
	Description string
	Default     json.RawMessage
	Type        string
	Const       any
	Enum        []any
	Minimum     json.Number
	Maximum     json.Number
	Ref         string `json:"$ref"`
	Properties  properties
	Items       *node
	AnyOf       []*node
	Defs        map[string]*node `json:"$defs"`
}

// properties are those of an object, in the order of the schema.
type properties []property

type property struct {
	name string
	node *node
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *properties) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		member := property{fmt.Sprint(name), new(node)}
		if err := d.Decode(member.node); err != nil {
			return err
		}
		*p = append(*p, member)
	}
	return nil
}

// fileKeys are the keys of the file, each before those inside it.
func fileKeys() []key {
	root := new(node)
	if err := json.Unmarshal(config.Schema, root); err != nil {
		panic(err) // a test compiles the embedded schema
	}
	return root.keys(nil, "", root)
}

func (root *node) keys(list []key, path string, n *node) []key {
	for _, p := range root.resolve(n).Properties {
		at := strings.TrimPrefix(path+"."+p.name, ".")
		member := root.resolve(p.node)
		inside := member
		switch {
		case member.Items != nil:
			inside = root.resolve(member.Items)
			if inside.Properties != nil {
				at += "[]"
			}
		case member.AnyOf != nil:
			inside = root.resolve(member.AnyOf[len(member.AnyOf)-1])
		}
		if value := root.value(member); value != "" {
			list = append(list, key{at, value, plain(p.node.Default), p.node.Description})
		}
		list = root.keys(list, at, inside)
	}
	return list
}

func (root *node) resolve(n *node) *node {
	if n.Ref == "" {
		return n
	}
	return root.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
}

// value says what may stand for n; "" is a mapping, or a list of mappings.
func (root *node) value(n *node) string {
	switch {
	case n.Title != "":
		return n.Title
	case n.Const != nil:
		return fmt.Sprintf("`%v`", n.Const)
	case len(n.Enum) > 8:
		return fmt.Sprintf("%v..%v", n.Enum[0], n.Enum[len(n.Enum)-1])
	case n.Enum != nil:
		words := make([]string, len(n.Enum))
		for i, w := range n.Enum {
			words[i] = fmt.Sprintf("`%v`", w)
		}
		return strings.Join(words, ", ")
	case n.AnyOf != nil:
		var values []string
		for _, a := range n.AnyOf {
			values = append(values, cmp.Or(root.value(root.resolve(a)), "a mapping"))
		}
		return strings.Join(values, ", ")
	case n.Maximum != "":
		return fmt.Sprintf("%s..%s", n.Minimum, n.Maximum)
	case n.Minimum != "":
		return fmt.Sprintf("%s or more", n.Minimum)
	case n.Type == "boolean":
		return "`true`, `false`"
	case n.Type == "string":
		return "text"
	}
	return ""
}

// plain is a JSON value as YAML has it; nothing where there is none.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && text != "" {
		return text
	}
	return string(value)
}
