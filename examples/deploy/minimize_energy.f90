! Minimize an energy with the gradient that dlc compiled, in Fortran.
!
!     dlc compile energy.py:value_and_gradient --shape x=8 --dtype x=float64 -o energy.so
!     gfortran -O2 minimize_energy.f90 ./energy.so -Wl,-rpath,. -o minimize_energy && ./minimize_energy
module dlc
  use, intrinsic :: iso_c_binding
  implicit none

  ! The struct dlc_call of energy.h.
  type, bind(c) :: dlc_call
    type(c_ptr) :: inputs = c_null_ptr, outputs = c_null_ptr, sizes = c_null_ptr, memory = c_null_ptr
    integer(c_int64_t) :: bytes = 0
    type(c_ptr) :: shapes = c_null_ptr, pool = c_null_ptr
    type(c_funptr) :: parallel = c_null_funptr
    type(c_ptr) :: user = c_null_ptr
    integer(c_int64_t) :: required_bytes = 0, failed_operation = 0
    type(c_ptr) :: program = c_null_ptr, selectors = c_null_ptr
    integer(c_int64_t) :: selector_count = 0
    type(c_ptr) :: unmatched_input = c_null_ptr
  end type

  interface
    function dlc_model_energy(call) bind(c) result(status)
      import :: dlc_call, c_int64_t
      type(dlc_call), intent(inout) :: call
      integer(c_int64_t) :: status
    end function

    function aligned_alloc(alignment, bytes) bind(c) result(memory)
      import :: c_ptr, c_size_t
      integer(c_size_t), value :: alignment, bytes
      type(c_ptr) :: memory
    end function
  end interface
end module

program minimize_energy
  use dlc
  implicit none
  real(c_double), target :: x(8), gradient(8), energy
  type(c_ptr), target :: inputs(1), outputs(2)
  type(dlc_call) :: call
  integer :: i, step

  x = [(0.1d0 + 0.05d0 * i, i = 0, 7)]
  inputs = [c_loc(x)]
  outputs = [c_loc(energy), c_loc(gradient)]
  call%inputs = c_loc(inputs)
  call%outputs = c_loc(outputs)
  ! Without memory, a call computes how much it needs.
  if (dlc_model_energy(call) /= 0) error stop "the model failed"
  call%bytes = (call%required_bytes + 63) / 64 * 64
  call%memory = aligned_alloc(64_c_size_t, int(call%bytes, c_size_t))
  do step = 1, 500
    if (dlc_model_energy(call) /= 0) error stop "the model failed"
    x = x - 0.05d0 * gradient
  end do
  print '(a, f0.6)', 'energy ', energy
end program
