//! Compiles the protocol, without a `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["launcher.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(true).compile_fds(descriptors)?;
    Ok(())
}
