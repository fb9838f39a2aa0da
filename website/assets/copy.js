// What is copied from a session can be run: commands without prompts, and no output.
document.addEventListener("click", event => {
  const button = event.target.closest("[data-clipboard-target]");
  const code = button && document.querySelector(button.dataset.clipboardTarget);
  if (code && code.querySelector(".gp")) {
    const commands = code.textContent.split("\n").filter(line => /^(>>>|\.\.\.|\$)( |$)/.test(line));
    button.dataset.clipboardText = commands.map(line => line.replace(/^(>>>|\.\.\.|\$) ?/, "")).join("\n") + "\n";
  }
}, true);
