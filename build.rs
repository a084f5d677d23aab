fn main() {
    scx_cargo::BpfBuilder::new()
        .expect("find a clang for BPF (>= 18; BPF_CLANG names one)")
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .compile_link_gen()
        .expect("compile src/bpf");
    // The headers are included by main.bpf.c, so the builder does not see them change.
    println!("cargo:rerun-if-changed=src/bpf");
}
