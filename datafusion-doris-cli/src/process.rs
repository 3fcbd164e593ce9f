//! The shell as a process: a runtime, the process's signals and its standard streams.

use std::time::Duration;

use crate::args::Args;
use crate::interrupt::Interrupts;
use crate::output::Output;

/// Longest wait for blocking calls that are still open at the end, such as a read of standard input.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs the shell with the streams and signals of this process; gives its exit code. To be called once, outside of any
/// runtime.
pub fn process(args: Args) -> u8 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return 1;
        }
    };
    let interrupts = match Interrupts::of_process() {
        Ok(interrupts) => interrupts,
        Err(error) => {
            eprintln!("error: {error}");
            return 1;
        }
    };
    let (output, _writer) = Output::stdio();
    let code = runtime.block_on(crate::run(args, output, interrupts));
    runtime.shutdown_timeout(SHUTDOWN);
    code
}
