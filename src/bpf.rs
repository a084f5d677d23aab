//! The generated sides of `src/bpf`: the skeleton and the structures of `intf.h`.

#![allow(unsafe_code, clippy::all)]

/// Structures and constants of `intf.h`.
pub mod intf {
    #![allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

/// The skeleton of `main.bpf.c`.
pub mod skel {
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}
