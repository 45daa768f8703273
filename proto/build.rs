//! Compiles our `.proto` files with `protox`, so that nobody needs an installed `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=postern");
    let descriptors = protox::compile(["postern/plan/v1/expression.proto", "postern/plan/v1/plan.proto"], ["."])?;
    prost_build::compile_fds(descriptors)?;
    #[cfg(feature = "discovery")]
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes("postern.discovery.v1.PolicyDiscoveryResponse.plan")
        .compile_fds(protox::compile(["postern/discovery/v1/discovery.proto"], ["."])?)?;
    #[cfg(feature = "audit")]
    tonic_prost_build::configure()
        .build_transport(false)
        .compile_fds(protox::compile(["postern/audit/v1/audit.proto"], ["."])?)?;
    Ok(())
}
