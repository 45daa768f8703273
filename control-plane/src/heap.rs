//! Memory that is free goes back to the system: the C library keeps it by itself, for as long as anything lives above it.
//!
//! Other allocators were tried on 5,000 streams that come and go. jemalloc gives back as much, and costs every build a
//! minute and a `make`; mimalloc takes half as much again for each stream.

/// Gives back whatever is free, and says whether anything was. It takes milliseconds, in which others may have to wait for
/// memory: something to do once many have left, not each time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a function of the C library that no crate of ours has in a safe form")]
pub(crate) fn give_back() -> bool {
    // It takes a number and touches nothing that is in use, so that calling it is safe.
    unsafe extern "C" {
        safe fn malloc_trim(kept: usize) -> std::ffi::c_int;
    }
    malloc_trim(0) != 0
}

/// Allocators of other systems are left to themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() -> bool {
    false
}
