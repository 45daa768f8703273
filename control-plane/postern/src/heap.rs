//! The allocator of the control plane: jemalloc, with background threads that return free memory to the system.
//!
//! A change of one route among 10,000 takes a quarter less time with it than with the C library's allocator, which
//! faults in the same pages again with every change, and cannot return free memory below memory in use. The figures are
//! in docs/decisions/0016-jemalloc.md.

/// In the library, so that tests and benches use the same allocator as the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
