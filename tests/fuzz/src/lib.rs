//! What the fuzz targets share: how an input is read, how a run is driven by one, and what must hold of every decision.
//!
//! A target is a program in `targets/`. `cargo xtask fuzz` compiles it with libFuzzer (`--cfg fuzzing`); any other build
//! makes a small program of it that runs the files it is given, or its seeds, and a test that runs the target's seeds.

#![forbid(unsafe_code)]

// A plan to write down by hand and a driver that keeps shared values: the engine's own tests have them.
#[doc(hidden)]
#[path = "../../../engine/tests/common/mod.rs"]
pub mod common;
pub mod cost;
pub mod decision;
pub mod driver;
pub mod expressions;
pub mod plans;
pub mod replay;
pub mod script;

pub use script::Script;

/// Makes a program of a target: `run` takes one input, `seeds` gives the inputs to start from.
#[macro_export]
macro_rules! target {
    (run: $run:ident, seeds: $seeds:ident) => {
        #[cfg(fuzzing)]
        ::libfuzzer_sys::fuzz_target!(init: $crate::replay::write_seeds(&$seeds()), |bytes: &[u8]| $run(bytes));

        #[cfg(not(fuzzing))]
        fn main() -> ::std::process::ExitCode {
            $crate::replay::files($run, &$seeds())
        }

        #[cfg(test)]
        #[test]
        fn has_no_finding_among_its_seeds() {
            $seeds().iter().for_each(|seed| $run(seed));
        }
    };
}
