//! What this process has used, as Linux tells it; `None` on other systems.

use std::fmt::Display;

use super::Outcome;

/// CPU time of this process so far, of all its threads, in user and kernel; the kernel counts in hundredths of a second.
pub fn cpu_seconds() -> Outcome<Option<f64>> {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Ok(None) };
    // The name of the program may hold anything, blanks too; utime and stime are the 12th and 13th after it.
    let fields = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1.split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(Some(ticks.iter().sum::<f64>() / 100.0))
}

/// Most memory that this process has had resident so far, or since [`restart_peak`], in megabytes.
pub fn peak_mb() -> Outcome<Option<f64>> {
    status_mb("VmHWM:")
}

/// Begins a new peak where memory is now, and gives that in megabytes; `None` where the kernel cannot do it.
pub fn restart_peak() -> Outcome<Option<f64>> {
    // The kernel's word for it, see proc(5).
    match std::fs::write("/proc/self/clear_refs", "5") {
        Ok(()) => status_mb("VmRSS:"),
        Err(_) => Ok(None),
    }
}

fn status_mb(name: &str) -> Outcome<Option<f64>> {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return Ok(None) };
    let Some(line) = status.lines().find_map(|line| line.strip_prefix(name)) else { return Ok(None) };
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(Some(kilobytes / 1024.0))
}

/// As [`cpu_seconds`], to the nanosecond: of the threads that are alive.
pub fn cpu_of_threads() -> Outcome<Option<f64>> {
    cpu_of_process("self")
}

/// As [`cpu_of_threads`], of the process with this id.
pub fn cpu_of_process(id: impl Display) -> Outcome<Option<f64>> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { return Ok(None) };
    let mut nanoseconds = 0.0;
    for task in tasks {
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanoseconds += text.split_whitespace().next().ok_or("an empty schedstat")?.parse::<f64>()?;
    }
    Ok(Some(nanoseconds / 1e9))
}
