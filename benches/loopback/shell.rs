//! From the start of the shell to the end of its first statement.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use datafusion_doris_cli::args::Args;

use crate::common::Outcome;
use crate::common::measure::Series;
use crate::common::server::TUNABLES;
use crate::report::{Bar, Figure, Report};

/// Argument that makes this program the shell: the same code, where the shell itself was not built.
const SHELL: &str = "run-shell";
/// Runs of the shell for each run of something longer.
const TIMES: u64 = 4;

/// Runs the shell in this process, when it was started for that. To be called outside of any runtime.
pub fn run_here() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1).skip_while(|argument| argument != SHELL);
    arguments.next()?;
    let args = Args::parse_from(std::iter::once("datafusion-doris-cli".to_owned()).chain(arguments));
    Some(ExitCode::from(datafusion_doris_cli::process(args)))
}

/// The shell beside this program, which lies in `deps`.
fn shell() -> Outcome<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(std::path::Path::parent).ok_or("this program has no folder")?;
    let shell = folder.join(format!("datafusion-doris-cli{}", std::env::consts::EXE_SUFFIX));
    Ok(shell.is_file().then_some(shell))
}

/// Measures `SELECT 1`, and the size of the program.
pub async fn measure(runs: u64, report: &mut Report) -> Outcome<()> {
    let built = shell()?;
    let (program, first) = match &built {
        Some(shell) => (shell.clone(), None),
        None => (std::env::current_exe()?, Some(SHELL)),
    };
    let mut series = Series::default();
    for run in 0..=runs * TIMES {
        let once = async {
            let mut command = Command::new(&program);
            let output = command
                .args(first)
                .args(["-q", "-c", "SELECT 1"])
                .stdin(Stdio::null())
                .env_remove(TUNABLES)
                .output()?;
            match output.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
            }
        };
        series.time(once).await?;
        if run == 0 {
            series.clear();
        }
    }
    let beside = match &built {
        Some(_) => "the whole process",
        None => "the whole process: this program as the shell, which was not built",
    };
    let figure = Figure::new("shell: SELECT 1", series.wall() * 1e3, "ms", Bar::Most(100.0));
    report.add(figure.of(&series).slack(10.0).beside(beside));
    if let Some(shell) = built {
        let megabytes = std::fs::metadata(shell)?.len() as f64 / 1e6;
        report.add(Figure::new("shell: size of the program", megabytes, "MB", Bar::Less).beside("not stripped"));
    }
    Ok(())
}
