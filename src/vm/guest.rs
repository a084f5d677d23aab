//! The script that the guest runs, and the files through which it reports.
//!
//! virtme-ng hands output and exit code over by virtio ports that udev names, and loses both where
//! there is no udev. So the guest writes into a directory of the host, which the host reads.

use std::path::Path;

/// Where the guest sees the run directory.
pub const RUN_DIR: &str = "/run/scx_retune";
/// Exists once the script runs.
pub const STARTED: &str = "started";
pub const STDOUT: &str = "stdout";
pub const STDERR: &str = "stderr";
/// Holds the command's exit code, and appears when both outputs are complete.
pub const EXIT_CODE: &str = "rc";
pub const SCRIPT: &str = "guest.sh";

/// What the guest does.
pub struct Job<'a> {
    pub command: &'a [String],
    pub directory: &'a Path,
    /// `NAME=value`, set for the command.
    pub env: &'a [(String, String)],
    /// Put where libbpf looks for the kernel's configuration.
    pub config: Option<&'a Path>,
}

/// The shell script for a job.
///
/// The outputs are files, appended to: no process of ours stands between the command and the host,
/// to be scheduled by what is tested, or to lose the last line before a panic. As with any file, a
/// command that opens /dev/stderr by name for writing truncates what is there.
pub fn script(job: &Job) -> String {
    let exports: String =
        job.env.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect();
    let command: Vec<String> = job.command.iter().map(|word| quote(word)).collect();
    format!(
        "run={RUN_DIR}\n\
         : > $run/{STARTED}\n\
         mount -t bpf bpf /sys/fs/bpf\n\
         {config}\
         (\n\
         {exports}\
         cd {directory} || exit 126\n\
         exec {command}\n\
         ) >> $run/{STDOUT} 2>> $run/{STDERR} < /dev/null\n\
         rc=$?\n\
         echo $rc > $run/{EXIT_CODE}.new\n\
         mv $run/{EXIT_CODE}.new $run/{EXIT_CODE}\n",
        config = job.config.map(install_config).unwrap_or_default(),
        directory = quote(&job.directory.to_string_lossy()),
        command = command.join(" "),
    )
}

/// The root is read only, and /boot may hold another kernel's files.
fn install_config(config: &Path) -> String {
    let config = quote(&config.to_string_lossy());
    format!("mount -t tmpfs boot /boot && cp {config} /boot/config-$(uname -r)\n")
}

/// Makes one word of any text for the shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn through_the_shell(text: &str) -> String {
        let script = format!("printf %s {}", quote(text));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn quotes_survive_the_shell() {
        for text in ["", "a b", "it's", "''", "$HOME `id` \\ \"\n"] {
            assert_eq!(through_the_shell(text), text);
        }
    }

    #[test]
    fn the_script_is_valid_shell() {
        let command = ["echo".to_string(), "it's".to_string()];
        let env = [("A".to_string(), "b c".to_string())];
        let config = Some(Path::new("/some where/config"));
        let job = Job { command: &command, directory: Path::new("/tmp"), env: &env, config };
        let check = Command::new("sh").args(["-n", "-c", &script(&job)]).output().unwrap();
        assert!(check.status.success(), "{check:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn any_printable_text_survives_the_shell(text in "\\PC{0,20}") {
            prop_assert_eq!(through_the_shell(&text), text);
        }
    }
}
