//! What the help says after the options: the exit status, and with `--help` the JSON object.

macro_rules! compared {
    () => {
        "Exit status: 0 all agree, 1 something diverges, 2 usage, 3 a trace cannot be read or \
         exceeds a limit."
    };
}

macro_rules! report {
    () => {
        "JSON: {\"ok\", \"traces\", \"wall_s\", \"simulated_s\"}. Each of `traces` has \"file\", \
         \"family\", \"cases\", \"ops\"; \"contract\", \"range_attributes\", \"pages\" and \
         \"events\", each {\"checked\", \"agree\"}; \"time\"; \"first_divergence\": null, or \
         {\"case\", \"line\", \"level\", \"op\", \"expected\", \"got\"}, of which \"op\" is the \
         operation as the trace has it; \"aggregate\", \"real_time\" and \"error\" where there \
         are any."
    };
}

macro_rules! failure {
    () => {
        "If the command fails before it has an answer: {\"ok\": false, \"status\", \"error\"}, \
         with the exit status; the message is on stderr too."
    };
}

pub(super) const COMPARED: &str = compared!();
pub(super) const REPLAY: &str = concat!(compared!(), "\n\n", report!(), " ", failure!());
pub(super) const COMPARE: &str = concat!(
    compared!(),
    "\n\n",
    report!(),
    " Without traces, each of `traces` is a family, and \"programs\" has for each {\"family\", \
     \"seed\", \"programs\", \"disagreeing\", \"by_chance\", \"first\"}; \"first\" is null, or \
     {\"case\", \"operations\", \"operation\", \"divergence\", \"program\"}: the name, the number \
     of operations before it was shrunk, the operation of the shrunk program that disagrees, and \
     the program's text. ",
    failure!(),
);

macro_rules! recorded {
    () => {
        "Exit status: 0 recorded, 2 usage, 3 the program cannot be read or exceeds a limit, a \
         result cannot be written, or there is no such back end."
    };
}

pub(super) const RECORDED: &str = recorded!();
pub(super) const RECORD: &str = concat!(
    recorded!(),
    "\n\nJSON: {\"ok\", \"output\", \"family\", \"cases\", \"operations\"}. ",
    failure!(),
);

#[cfg(feature = "calibrate")]
macro_rules! calibrated {
    () => {
        "Exit status: 0 the profile is written, 2 usage, 3 a trace cannot be read, exceeds a limit \
         or has no times, or the profile cannot be written."
    };
}

#[cfg(feature = "calibrate")]
pub(super) const CALIBRATED: &str = calibrated!();
#[cfg(feature = "calibrate")]
pub(super) const CALIBRATE: &str = concat!(
    calibrated!(),
    "\n\nJSON: {\"ok\", \"output\", \"files\", \"kinds\", \"fitted\", \"converged\", \
     \"without_evidence\", \"wall_s\"}. Each of `files` and `kinds` has \"name\", \"ops\", \
     \"before\", \"after\" and \"held_out\". ",
    failure!(),
);

pub(super) const PROFILES: &str = concat!(
    "JSON: {\"ok\", \"profiles\"}, each with \"name\", \"memory_bytes\", \"host_link\", \
     \"peer_link\" and \"figures\", their number by evidence; of one profile {\"ok\", \"profile\"}, \
     the document. ",
    failure!(),
);

macro_rules! doctor {
    () => {
        "Exit status: 0, with or without a driver."
    };
}

pub(super) const DOCTORED: &str = doctor!();
pub(super) const DOCTOR: &str = concat!(
    doctor!(),
    "\n\nJSON: {\"ok\", \"driver\", \"devices\", \"host\", \"supported\"}. `driver` has \"library\", \
     \"version\", \"used_as\", \"advise_and_prefetch\", \"entry_points\" and \"devices\", or \
     \"error\"; each of `devices` \"ordinal\", \"name\", \"memory\", \"compute_capability\" and \
     \"attributes\"; `host` \"numa_nodes\", \"page_table\" and \"records\"; `supported` \"driver\", \
     \"simulator\" and \"capabilities\". What is not known is {\"error\"} or null.",
);

pub(super) const COMPLETIONS: &str = concat!(
    "To install them: pagewise completions bash > ~/.local/share/bash-completion/completions/\
     pagewise; for zsh into _pagewise in a directory of $fpath; for fish into \
     ~/.config/fish/completions/pagewise.fish.\n\nJSON: {\"ok\", \"shell\", \"script\"}. ",
    failure!(),
);

pub(super) const MAN: &str = concat!(
    "To read it: pagewise man | man -l -. To install it: pagewise man > \
     ~/.local/share/man/man1/pagewise.1.\n\nJSON: {\"ok\", \"page\"}. ",
    failure!(),
);
