// One request at a time, and always the latest: requests made while one is running are dropped,
// except for the last.

export const BUSY = 503;
const PAUSE = 300; // milliseconds before a busy server is tried again

export function latest(ask, show, fail) {
  let waiting = null;
  let running = false;

  async function run() {
    running = true;
    while (waiting) {
      const question = waiting;
      waiting = null;
      try {
        const answer = await ask(question);
        if (!waiting) show(answer, question);
      } catch (error) {
        if (error.status === BUSY) {
          waiting = waiting || question;
          await new Promise((resolve) => setTimeout(resolve, PAUSE));
        } else if (!waiting) fail(error, question);
      }
    }
    running = false;
  }

  return (question) => {
    waiting = question;
    if (!running) run();
  };
}
