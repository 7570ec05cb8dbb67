//! A model that is linked to a Rust program, which needs nothing else:
//!
//!     dlc compile mnist_cnn.onnx -o mnist.o && rustc -O -C link-arg=mnist.o run_mnist.rs && ./run_mnist

use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// `dlc_call` of mnist.h.
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
    needed: i64,
    failed: i64,
    program: *const c_void,
    given: *const c_void,
    given_count: i64,
    unfit: *const i8,
}

extern "C" {
    fn dlc_model_mnist(call: *mut Call) -> i64;
}

#[derive(Clone)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory for one call at a time.
struct Mnist {
    memory: Vec<Line>,
}

impl Mnist {
    fn new() -> Mnist {
        let mut model = Mnist { memory: Vec::new() };
        let mut call = model.call(null(), null_mut());
        // Without memory it answers how much a call takes.
        unsafe { dlc_model_mnist(&mut call) };
        model.memory = vec![Line([0; 64]); (call.needed as usize).div_ceil(64)];
        model
    }

    /// The probabilities of the ten digits.
    fn run(&mut self, picture: &[f32; 784]) -> Result<[f32; 10], i64> {
        let mut digits = [0f32; 10];
        let inputs = [picture.as_ptr() as *const c_void];
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
            pool: null_mut(), parallel: None, user: null_mut(), needed: 0, failed: 0, program: null(),
            given: null(), given_count: 0, unfit: null(),
        }
    }
}

fn main() {
    match Mnist::new().run(&[0.0; 784]) {
        Ok(digits) => println!("of zeros: {digits:?}"),
        Err(code) => eprintln!("the model failed with {code}"),
    }
}
