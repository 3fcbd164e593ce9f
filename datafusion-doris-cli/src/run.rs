//! One run of the program, from its arguments to its exit code.

use std::io::IsTerminal;
use std::path::Path;

use tokio::io::AsyncReadExt;

use crate::admin;
use crate::args::{Args, Mode};
use crate::complete::Names;
use crate::context::Context;
use crate::error::{Result, ShellError};
use crate::interrupt::Interrupts;
use crate::output::Output;
use crate::repl::{self, EditorThread};
use crate::shell::{Flow, Shell};

/// Runs the shell as `args` say and gives the exit code: 0, or that of the first error (see
/// [`ShellError::exit_code`]). Errors have been reported on `output`.
pub async fn run(args: Args, output: Output, mut interrupts: Interrupts) -> u8 {
    let done = match &args.mode {
        Some(Mode::Sandbox(sandbox)) => {
            Some(sandbox.run().await.map_err(|error| ShellError::Sandbox(error.to_string())))
        }
        Some(Mode::Jobs(jobs)) => Some(interrupts.guard(admin::run(jobs, &output)).await),
        None => None,
    };
    if let Some(done) = done {
        if let Err(error) = &done {
            report(&output, error).await;
        }
        let _ = output.flush().await;
        return done.map_or_else(|error| error.exit_code(), |()| 0);
    }
    let context = match start_context(&args, &mut interrupts).await {
        Ok(context) => context,
        Err(error) => {
            report(&output, &error).await;
            return error.exit_code();
        }
    };
    let mut shell = Shell::new(context, output.clone(), interrupts, args.format, args.quiet);
    let ran = run_inputs(&mut shell, &args).await;
    let signal = match &ran {
        Err(ShellError::Interrupted(signal)) => Some(*signal),
        _ => None,
    };
    let ended = shell.end(signal).await;
    let _ = output.flush().await;
    ran.and(ended).map_or_else(|error| error.exit_code(), |()| 0)
}

async fn report(output: &Output, error: &ShellError) {
    // Nobody is left to tell when this fails too.
    let _ = output.note(&format!("error: {error}")).await;
    let _ = output.flush().await;
}

async fn start_context(args: &Args, interrupts: &mut Interrupts) -> Result<Context> {
    let mut context = Context::new();
    if args.sandbox {
        interrupts.guard(context.start_sandbox()).await?;
    }
    for catalog in &args.catalogs {
        interrupts.guard(context.add_catalog(catalog)).await?;
    }
    Ok(context)
}

async fn run_inputs(shell: &mut Shell, args: &Args) -> Result<()> {
    if !args.commands.is_empty() {
        for sql in &args.commands {
            if shell.run_script(sql, None).await? == Flow::Quit {
                break;
            }
        }
        return Ok(());
    }
    let path = args.file.as_deref();
    let standard_input = Path::new("-");
    if path.is_none() && std::io::stdin().is_terminal() {
        let names = Names::default();
        let mut editor = EditorThread::start(names.clone())?;
        shell.note("statements end with `;`, \\help lists the commands, Ctrl-D or \\q leaves").await?;
        return repl::run(shell, &mut editor, &names).await;
    }
    let path = path.unwrap_or(standard_input);
    let text = match shell.interrupts.guard(read(path)).await {
        Ok(text) => text,
        Err(error) => {
            shell.report(&error, None).await;
            return Err(error);
        }
    };
    let origin = if path == standard_input { "standard input".to_owned() } else { path.display().to_string() };
    shell.run_script(&text, Some(&origin)).await.map(drop)
}

async fn read(path: &Path) -> Result<String> {
    let result = if path == Path::new("-") {
        let mut text = String::new();
        tokio::io::stdin().read_to_string(&mut text).await.map(|_| text)
    } else {
        tokio::fs::read_to_string(path).await
    };
    result.map_err(|source| ShellError::Read { path: path.display().to_string(), source })
}
