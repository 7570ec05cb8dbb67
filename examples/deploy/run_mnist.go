// Run a model that is linked into a Go program with cgo. In the folder of this file:
//
//	dlc compile mnist_cnn.onnx -o mnist.a && go run run_mnist.go
package main

/*
#cgo LDFLAGS: ${SRCDIR}/mnist.a
#include <stdlib.h>
#include "mnist.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Mnist is the MNIST model and the memory of one call; use one value per goroutine. The memory is allocated by C, since
// dlc_call holds pointers to pointers.
type Mnist struct {
	call   *C.dlc_call
	image  *[784]float32
	digits *[10]float32
}

func newMnist() *Mnist {
	model := &Mnist{
		call:   (*C.dlc_call)(C.calloc(1, C.sizeof_dlc_call)),
		image:  (*[784]float32)(C.calloc(784, 4)),
		digits: (*[10]float32)(C.calloc(10, 4)),
	}
	// A call without memory only reports how much memory a call needs.
	C.dlc_model_mnist(model.call)
	model.call.bytes = (model.call.required_bytes + 63) / 64 * 64
	model.call.memory = C.aligned_alloc(64, C.size_t(model.call.bytes))
	model.call.inputs = (*unsafe.Pointer)(pointerTo(unsafe.Pointer(model.image)))
	model.call.outputs = (*unsafe.Pointer)(pointerTo(unsafe.Pointer(model.digits)))
	return model
}

func pointerTo(array unsafe.Pointer) unsafe.Pointer {
	pointer := C.calloc(1, C.size_t(unsafe.Sizeof(array)))
	*(*unsafe.Pointer)(pointer) = array
	return pointer
}

// Run returns the probabilities of the ten digits for an image of 28×28 pixels.
func (model *Mnist) Run(image *[784]float32) ([10]float32, error) {
	*model.image = *image
	if code := C.dlc_model_mnist(model.call); code != 0 {
		return [10]float32{}, fmt.Errorf("dlc_model_mnist: %d", code)
	}
	return *model.digits, nil
}

// Close frees the memory that was allocated by C.
func (model *Mnist) Close() {
	for _, memory := range []unsafe.Pointer{
		model.call.memory, unsafe.Pointer(model.call.inputs), unsafe.Pointer(model.call.outputs),
		unsafe.Pointer(model.call), unsafe.Pointer(model.image), unsafe.Pointer(model.digits),
	} {
		C.free(memory)
	}
}

func main() {
	model := newMnist()
	defer model.Close()
	digits, err := model.Run(&[784]float32{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("probabilities: %.4f\n", digits)
}
