//! Run a model that is linked into a Rust program, without any crate:
//!
//!     dlc compile mnist_cnn.onnx -o mnist.o && rustc -O -C link-arg=mnist.o run_mnist.rs && ./run_mnist

use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// The layout of `dlc_call` in mnist.h.
#[repr(C)]
struct Call {
    inputs: *const *const c_void,
    outputs: *mut *mut c_void,
    sizes: *const i64,
    memory: *mut c_void,
    bytes: i64,
    shapes: *mut i64,
    pool: *mut c_void,
    parallel: Option<unsafe extern "C" fn(*mut c_void, unsafe extern "C" fn(*mut c_void, i64), *mut c_void, i64)>,
    user: *mut c_void,
    required_bytes: i64,
    failed_operation: i64,
    program: *const c_void,
    selectors: *const c_void,
    selector_count: i64,
    unmatched_input: *const i8,
}

extern "C" {
    fn dlc_model_mnist(call: *mut Call) -> i64;
}

#[derive(Clone)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// The MNIST model and the memory of one call; use one value per thread.
struct Mnist {
    memory: Vec<CacheLine>,
}

impl Mnist {
    fn new() -> Mnist {
        let mut model = Mnist { memory: Vec::new() };
        let mut call = model.call(null(), null_mut());
        // A call without memory only reports how much memory a call needs.
        unsafe { dlc_model_mnist(&mut call) };
        model.memory = vec![CacheLine([0; 64]); (call.required_bytes as usize).div_ceil(64)];
        model
    }

    /// Returns the probabilities of the ten digits for an image of 28×28 pixels.
    fn run(&mut self, image: &[f32; 784]) -> Result<[f32; 10], i64> {
        let mut digits = [0f32; 10];
        let inputs = [image.as_ptr() as *const c_void];
        let mut outputs = [digits.as_mut_ptr() as *mut c_void];
        let mut call = self.call(inputs.as_ptr(), outputs.as_mut_ptr());
        match unsafe { dlc_model_mnist(&mut call) } {
            0 => Ok(digits),
            code => Err(code),
        }
    }

    fn call(&mut self, inputs: *const *const c_void, outputs: *mut *mut c_void) -> Call {
        let memory = if self.memory.is_empty() { null_mut() } else { self.memory.as_mut_ptr() as *mut c_void };
        Call {
            inputs, outputs, memory, bytes: (self.memory.len() * 64) as i64, sizes: null(), shapes: null_mut(),
            pool: null_mut(), parallel: None, user: null_mut(), required_bytes: 0, failed_operation: 0, program: null(),
            selectors: null(), selector_count: 0, unmatched_input: null(),
        }
    }
}

fn main() {
    match Mnist::new().run(&[0.0; 784]) {
        Ok(digits) => println!("probabilities: {digits:?}"),
        Err(code) => eprintln!("the model failed with {code}"),
    }
}
