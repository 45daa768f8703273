//! The allocator of this module. Small blocks come from lists of free blocks, one list for each size.
//!
//! A request needs a dozen small blocks and frees all of them. Rust's allocator for wasm32 takes some three hundred
//! instructions for each, to merge free neighbours, and its code displaces ours from the CPU's caches. Here a block
//! keeps its size for ever. The waste is bounded by the most blocks of each size that were ever in use at once.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; each block says why it is sound")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::UnsafeCell,
    ptr,
};

/// Sizes are rounded up to this, which is also the alignment of every block.
const UNIT: usize = 16;
/// The largest size that has a list. Larger blocks come from Rust's allocator.
const LARGEST: usize = 1024;
const SIZES: usize = LARGEST / UNIT;

/// A free block. It holds the pointer to the next one.
struct Free {
    next: *mut Free,
}

/// The lists of free blocks, by size.
struct Lists(UnsafeCell<[*mut Free; SIZES]>);

// SAFETY: a module of proxy-wasm has one thread.
#[cfg(target_arch = "wasm32")]
unsafe impl Sync for Lists {}

/// The allocator of this module.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
static MEMORY: Lists = Lists::new();

/// Allocates bytes that can be freed as a `Box<[u8]>` of this size. It takes a block directly from the lists; `Box`
/// would take three calls more.
#[inline]
pub(crate) fn block(size: usize) -> *mut u8 {
    let Ok(layout) = Layout::array::<u8>(size) else { return ptr::null_mut() };
    if size == 0 {
        return ptr::dangling_mut();
    }
    #[cfg(target_arch = "wasm32")]
    let allocator = &MEMORY;
    #[cfg(not(target_arch = "wasm32"))]
    let allocator = &System;
    // SAFETY: the size is not 0.
    unsafe { allocator.alloc(layout) }
}

impl Lists {
    const fn new() -> Self {
        Self(UnsafeCell::new([ptr::null_mut(); SIZES]))
    }

    /// The list for blocks of this layout. `None` if they are too large.
    #[inline]
    fn list(&self, layout: Layout) -> Option<*mut *mut Free> {
        let place = layout.size().checked_sub(1)? / UNIT;
        if place >= SIZES || layout.align() > UNIT {
            return None;
        }
        // SAFETY: the place is inside of the array.
        Some(unsafe { self.0.get().cast::<*mut Free>().add(place) })
    }
}

// SAFETY: a block is either in use or in one list; what is handed out is as large and as aligned as its list says, which is
// at least what was asked for; and whatever is not small is left to the system's allocator, there and back.
unsafe impl GlobalAlloc for Lists {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(list) = self.list(layout) else {
            // SAFETY: the caller's promise is the same as ours.
            return unsafe { alloc_new(layout) };
        };
        // SAFETY: only this thread uses the lists, and what is in one is free.
        unsafe {
            let block = *list;
            if !block.is_null() {
                *list = (*block).next;
                return block.cast();
            }
        }
        let size = layout.size().next_multiple_of(UNIT);
        // SAFETY: the size is not 0, as it has a list.
        unsafe { alloc_new(Layout::from_size_align_unchecked(size, UNIT)) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(list) = self.list(layout) else {
            // SAFETY: it came from there, and the caller gives it up.
            return unsafe { dealloc_large(block, layout) };
        };
        let block: *mut Free = block.cast();
        // SAFETY: it is as large as its list says, aligned for it, and nobody else's any more.
        unsafe {
            (*block).next = *list;
            *list = block;
        }
    }
}

/// Allocates a block that no list has. A separate function, so that the path through the lists is short enough to be
/// inlined.
///
/// # Safety
///
/// As of [`GlobalAlloc::alloc`].
#[cold]
#[inline(never)]
unsafe fn alloc_new(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's promise is the same.
    unsafe { System.alloc(layout) }
}

/// # Safety
/// As of [`GlobalAlloc::dealloc`].
#[cold]
#[inline(never)]
unsafe fn dealloc_large(block: *mut u8, layout: Layout) {
    // SAFETY: the caller's promise is the same.
    unsafe { System.dealloc(block, layout) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blocks_in_use_lie_on_each_other() {
        let lists = Lists::new();
        let mut used: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let mut random: u32 = 7;
        for turn in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let choice = random >> 8;
            if choice % 5 < 3 || used.is_empty() {
                let size = (choice as usize / 5) % 1_400 + 1;
                let layout = Layout::from_size_align(size, [1, 4, 8, 16, 32][choice as usize % 5]).unwrap();
                let mark = turn as u8;
                // SAFETY: the size is not 0, and all of the block is written before it is read.
                let block = unsafe {
                    let block = lists.alloc(layout);
                    block.write_bytes(mark, size);
                    block
                };
                assert_eq!(block.addr() % layout.align(), 0);
                used.push((block, layout, mark));
            } else {
                let (block, layout, mark) = used.swap_remove(choice as usize % used.len());
                // SAFETY: it was allocated with this layout, written whole, and is given back once.
                unsafe {
                    let bytes = std::slice::from_raw_parts(block, layout.size());
                    assert!(bytes.iter().all(|byte| *byte == mark), "turn {turn}");
                    lists.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn takes_a_block_that_was_given_back() {
        let lists = Lists::new();
        let (small, like_it) = (Layout::from_size_align(100, 4).unwrap(), Layout::from_size_align(112, 16).unwrap());
        // SAFETY: sizes are not 0, and each block is given back with the layout that it was taken with.
        unsafe {
            let block = lists.alloc(small);
            lists.dealloc(block, small);
            assert_eq!(lists.alloc(like_it), block);
            assert_ne!(lists.alloc(like_it), block);
        }
    }
}
