// Buttons that name panels: pressing one shows its panel and hides the others of its group.
for (const group of document.querySelectorAll("[data-switch]")) {
  const buttons = [...group.querySelectorAll("button")];
  const show = (chosen) => {
    for (const button of buttons) {
      const on = button === chosen;
      button.setAttribute("aria-pressed", String(on));
      document.getElementById(button.dataset.panel).hidden = !on;
    }
  };
  for (const button of buttons) button.addEventListener("click", () => show(button));
  if (buttons.length) show(buttons[0]);
}
