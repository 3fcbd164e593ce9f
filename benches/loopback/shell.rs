//! From the start of the shell to the first result.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::Outcome;
use crate::common::measure::Series;
use crate::report::{Bar, Report};

/// The shell beside this program, which lies in `deps`.
fn shell() -> Outcome<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(std::path::Path::parent).ok_or("this program has no folder")?;
    let shell = folder.join("datafusion-doris-cli");
    Ok(shell.is_file().then_some(shell))
}

/// Measures `SELECT 1`, and the size of the program.
pub async fn measure(runs: u64, report: &mut Report) -> Outcome<()> {
    let Some(shell) = shell()? else {
        eprintln!("the shell is not measured: build it first, in the same profile");
        return Ok(());
    };
    let mut series = Series::default();
    for run in 0..=runs {
        let once = async {
            let output = Command::new(&shell).args(["-q", "-c", "SELECT 1"]).stdin(Stdio::null()).output()?;
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
    let beside = format!("the whole process, spread {:.0} %", series.spread());
    report.add("shell: SELECT 1", series.wall() * 1e3, "ms", Bar::Most(100.0), beside);
    let bytes = std::fs::metadata(&shell)?.len();
    report.add("shell: size of the program", bytes as f64 / 1e6, "MB", Bar::None, "not stripped");
    Ok(())
}
