//! The allocator of the control plane: jemalloc, with threads of its own that give free memory back to the system.
//!
//! A change of one route among 10,000 takes a quarter less time with it than with the C library's, which pays for the same
//! pages again with every change, and keeps what is free for as long as anything lives above it. ARCHITECTURE.md has the
//! figures.

/// It belongs to the library, so that tests and benches measure what the program runs on.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
