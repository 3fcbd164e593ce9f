//! Parts that need no server, one core each: encoders by format and type, the decoding and casting of columns by type, the
//! text of statements, options.
//!
//! `cargo bench --features criterion --bench parts`; what follows `--` are names to run and options of criterion, for example
//! `-- encode/csv --save-baseline before` and `-- encode/csv --baseline before`.

mod columns;
mod decode;
mod encode;
mod texts;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let benches: [(&str, fn(&mut Criterion) -> Outcome); 3] =
        [("encode", encode::benches), ("decode", decode::benches), ("texts", texts::benches)];
    for (name, bench) in benches {
        if let Err(error) = bench(&mut criterion) {
            eprintln!("{name}: {error}");
            std::process::exit(1);
        }
    }
    criterion.final_summary();
}

/// Result of setting up benches.
type Outcome = Result<(), Box<dyn std::error::Error>>;
