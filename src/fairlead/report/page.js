// The switch between light and dark.
const turn = document.createElement("button");
turn.type = "button";
turn.className = "theme corner";
turn.textContent = "◐";
turn.title = "Light or dark";
turn.setAttribute("aria-label", "Switch between light and dark");
document.body.prepend(turn);

// A legend entry switches its policy on and off in every chart. Without scripts the entries are plain text.
for (const entry of document.querySelectorAll("[data-toggle]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.title = "Show or hide in all charts";
  button.setAttribute("aria-pressed", "true");
  button.append(...entry.childNodes);
  entry.append(button);
  button.addEventListener("click", () => {
    const isShown = button.getAttribute("aria-pressed") !== "true";
    const index = entry.dataset.toggle;
    for (const other of document.querySelectorAll(`[data-toggle="${index}"] button`)) {
      other.setAttribute("aria-pressed", String(isShown));
    }
    for (const shape of document.querySelectorAll(`[data-series="${index}"]`)) {
      shape.classList.toggle("off", !isShown);
    }
  });
}
