// GRADCHECK/1 at level `frames`, standard library only: go build grads.go
// Copy this file, keep part 1, put your own operators into part 2.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"unicode/utf8"
)

// ── part 1: frames and the conversation ──
const magic, headerMax, payloadMax = "GRDC\r\n\x1a\n", 1 << 24, 1 << 36

var little, sink = binary.LittleEndian, os.Stdout

type Message map[string]any // an operator may panic with one, of the kind "unsupported" say
type Block struct {
	Role, Name, Dtype string
	Shape             []uint64
	Offset, Nbytes    uint64
	raw               []byte
}
type Request struct { // one `run`: operators read in, whose keys are such as "input.x", and give
	Kind, Op, Ask, Dtype string
	Attrs                map[string]any
	Blocks               []Block
	in                   map[string]*Block
	out                  []Message
	payload              bytes.Buffer
}

func (r *Request) unpack(payload []byte) {
	r.in = map[string]*Block{}
	for i := range r.Blocks {
		block := &r.Blocks[i]
		size := map[string]float64{"float64": 8, "float32": 4, "int64": 8}[block.Dtype]
		for _, length := range block.Shape {
			size *= float64(length)
		}
		if size != float64(block.Nbytes) {
			panic("a block does not fill its shape, or its dtype is not known here")
		}
		block.raw = payload[block.Offset : block.Offset+block.Nbytes] // panics outside of it
		r.in[block.Role+"."+block.Name] = block
	}
}

func numbers[T any](block *Block) (out []T) { // in C order; none where there is no such block
	if block != nil {
		out = make([]T, len(block.raw)/binary.Size(*new(T)))
		must(binary.Read(bytes.NewReader(block.raw), little, out))
	}
	return
}
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (r *Request) give(name string, like *Block, data any) {
	role := map[string]string{"vjp": "gradient", "forward": "output"}[r.Ask]
	start := r.payload.Len()
	must(binary.Write(&r.payload, little, data))
	r.out = append(r.out, Message{"role": role, "name": name, "dtype": like.Dtype,
		"shape": like.Shape, "offset": start, "nbytes": r.payload.Len() - start})
	r.payload.Write(make([]byte, -r.payload.Len()&63))
}

func answer(text, payload []byte) (said Message, out []byte) {
	defer func() {
		if cause := recover(); cause != nil {
			if said, _ = cause.(Message); said == nil {
				said = Message{"kind": "error", "message": fmt.Sprint(cause)}
			}
		}
	}()
	var r Request
	must(json.Unmarshal(text, &r))
	switch call := calls[r.Op+" "+r.Dtype]; {
	case r.Kind == "hello":
		return Message{"kind": "hello", "protocol": 1, "implementation": about, "ops": ops}, nil
	case r.Kind == "ping":
		return Message{"kind": "pong"}, nil
	case r.Kind == "reset": // there is no cache to forget
		return Message{"kind": "done"}, nil
	case r.Kind != "run":
		panic(fmt.Sprintf("no such kind: %q", r.Kind))
	case call == nil || r.Ask != "vjp" && r.Ask != "forward":
		return Message{"kind": "unsupported", "reason": "no " + r.Ask + " of " + r.Op + " here"}, nil
	default:
		r.unpack(payload)
		call(&r)
		return Message{"kind": "result", "blocks": r.out}, r.payload.Bytes()
	}
}

func send(said Message, payload []byte) {
	header, _ := json.Marshal(said)
	frame := little.AppendUint32([]byte(magic), uint32(len(header)))
	frame = little.AppendUint64(frame, uint64(len(payload)))
	sink.Write(append(append(frame, header...), payload...))
}

func receive() (header map[string]json.RawMessage, text, payload []byte) { // nil: the input ends
	var prefix [20]byte
	if n, _ := io.ReadFull(os.Stdin, prefix[:]); n == 0 {
		return
	}
	size, rest := little.Uint32(prefix[8:]), little.Uint64(prefix[12:])
	if string(prefix[:8]) != magic || size > headerMax || rest > payloadMax {
		panic("a frame has another beginning, or is too large")
	}
	var frame bytes.Buffer // grows as bytes arrive: a length that is only claimed takes no memory
	if n, _ := io.CopyN(&frame, os.Stdin, int64(size)+int64(rest)); n < int64(size)+int64(rest) {
		panic("the input ends within a frame")
	}
	text, payload = frame.Bytes()[:size], frame.Bytes()[size:frame.Len():frame.Len()]
	if must(json.Unmarshal(text, &header)); header == nil || !utf8.Valid(text) {
		panic("the header is no object, or not in UTF-8")
	}
	return
}

func main() {
	os.Stdout = os.Stderr // what an operator prints is no frame
	defer func() {
		if cause := recover(); cause != nil {
			send(Message{"kind": "error", "seq": nil, "message": fmt.Sprint(cause)}, nil)
			os.Exit(1)
		}
	}()
	for header, text, payload := receive(); header != nil; header, text, payload = receive() {
		if string(header["kind"]) == `"bye"` {
			return
		}
		said, out := answer(text, payload)
		said["seq"] = header["seq"]
		send(said, out)
	}
}

// ── part 2: the operators ──
var about = Message{"name": "grads.go", "version": "1", "language": "Go"}
var asks, dtypes = []string{"vjp", "forward"}, []string{"float64", "float32"}
var ops = Message{
	"rms_norm": Message{"asks": asks, "dtypes": dtypes, "attrs": []string{"eps", "unit_offset"}},
	"silu":     Message{"asks": asks, "dtypes": dtypes, "attrs": []string{}},
}
var result = map[string]string{"vjp": "x", "forward": "0"}
var calls = map[string]func(*Request){
	"rms_norm float64": rmsNorm[float64], "rms_norm float32": rmsNorm[float32],
	"silu float64": silu[float64], "silu float32": silu[float32],
}

func rmsNorm[T float32 | float64](r *Request) {
	like, w, x := r.in["input.x"], r.in["input.w"], numbers[T](r.in["input.x"])
	d, y := int(like.Shape[len(like.Shape)-1]), make([]T, len(x))
	ct := append(numbers[T](r.in["cotangent.0"]), y...) // zeros for forward
	gain, dw := append(numbers[T](w), make([]T, d)...)[:d], make([]T, d)
	for j := range gain {
		if w == nil || r.Attrs["unit_offset"] == true {
			gain[j]++
		}
	}
	for i := 0; i < len(x); i += d {
		square, mean := T(r.Attrs["eps"].(float64)), T(0)
		for j, g := range gain {
			square += x[i+j] * x[i+j] / T(d)
			mean += x[i+j] * ct[i+j] * g / T(d)
		}
		scale := T(1 / math.Sqrt(float64(square)))
		for j, g := range gain {
			n := x[i+j] * scale
			y[i+j] = scale * (ct[i+j]*g - n*scale*mean)
			dw[j] += ct[i+j] * n
			if r.Ask == "forward" {
				y[i+j] = n * g
			}
		}
	}
	r.give(result[r.Ask], like, y)
	if w != nil && r.Ask == "vjp" {
		r.give("w", w, dw)
	}
}

func silu[T float32 | float64](r *Request) {
	x := numbers[T](r.in["input.x"])
	y := map[string][]T{"vjp": numbers[T](r.in["cotangent.0"]), "forward": append([]T{}, x...)}[r.Ask]
	for i, v := range x {
		y[i] *= T(1 / (1 + math.Exp(-float64(v)))) // WRONG, for show: vjp lacks ct x s (1 - s)
	}
	r.give(result[r.Ask], r.in["input.x"], y)
}
