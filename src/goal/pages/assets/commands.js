"use strict";
// A button beside each command puts its text on the clipboard.
(function () {
  function selected(code) {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  async function copy(button, code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      selected(code); // the browser keeps the clipboard to itself: the text is ready for Ctrl-C
      if (!document.execCommand("copy")) { button.textContent = "Press Ctrl-C"; return; }
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  for (const button of document.querySelectorAll("button.copy"))
    button.addEventListener("click", () => copy(button, button.parentElement.querySelector("code")));
})();
