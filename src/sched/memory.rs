//! Memory that BPF and the loader share, behind checked wrappers.
//!
//! A resizable section is typed as one element in the skeleton. Its real size is the
//! map's value size, and the skeleton's own reference is only right after load.

#![allow(unsafe_code)]

use std::mem::size_of;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapMut, OpenMapMut};

/// Structures of intf.h that hold nothing but integers.
///
/// # Safety
/// Every bit pattern must be a value, and there must be no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: u8 and u16 are integers.
unsafe impl Plain for u8 {}
unsafe impl Plain for u16 {}
unsafe impl Plain for u64 {}
// SAFETY: each of these is made of u16 alone (intf.h).
unsafe impl Plain for crate::bpf::intf::cpu_place {}
unsafe impl Plain for crate::bpf::intf::llc_place {}
unsafe impl Plain for crate::bpf::intf::queue_place {}
unsafe impl Plain for crate::bpf::intf::group_place {}
unsafe impl Plain for crate::bpf::intf::node_place {}

/// Sizes a resizable section for `values` and fills it; before load only.
///
/// Written through the map, never through the skeleton's reference: resizing moves the
/// memory and leaves that reference pointing to where it was until load.
pub fn fill<T: Plain>(map: &mut OpenMapMut, values: &[T]) -> Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    resize::<T>(map, values.len())?;
    let target = map.initial_value_mut().with_context(|| format!("map {name} has no memory"))?;
    // SAFETY: `values` is a live slice of plain integers, read as its bytes.
    let bytes = unsafe {
        std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), std::mem::size_of_val(values))
    };
    ensure!(target.len() >= bytes.len(), "map {name} is smaller than its table");
    target[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// Sizes a resizable section for `count` elements of `T`, zeroed; before load only.
pub fn resize<T>(map: &mut OpenMapMut, count: usize) -> Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    let size = u32::try_from(count.max(1) * size_of::<T>())?;
    map.set_value_size(size).with_context(|| format!("cannot size map {name} to {size} bytes"))
}

/// A loaded section as atomic words, all of them.
///
/// `section` is the skeleton's reference after load; `map` says how long it really is.
pub fn words<'a, T>(section: &'a mut T, map: &MapMut) -> &'a [AtomicU64] {
    let count = map.value_size() as usize / size_of::<u64>();
    // SAFETY: libbpf maps a section in whole pages of at least value_size bytes, page
    // aligned, and keeps it mapped as long as the skeleton that `section` borrows from.
    // The other writer is BPF, with aligned 64-bit accesses, so atomics are the right view.
    unsafe { std::slice::from_raw_parts((section as *mut T).cast::<AtomicU64>(), count) }
}
